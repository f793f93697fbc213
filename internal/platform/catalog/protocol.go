package catalog

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

// The protocols whose calls are more than a method and a body.
const (
	ProtocolSOAP    = "SOAP"
	ProtocolGraphQL = "GraphQL"
)

// SOAP says how the envelopes of a service are made.
type SOAP struct {
	// Version is 1.1 (the default) or 1.2.
	Version string `yaml:"version"`
	// Namespaces are declared in every envelope, by their prefixes.
	Namespaces map[string]string `yaml:"namespaces"`
	// Security puts user and password of a basic_auth credential into the envelope, as a UsernameToken of WS-Security,
	// instead of a header of HTTP; one of the constants below, or empty.
	Security string `yaml:"security"`
}

// The values of SOAP.Security: the password as it is, or a digest of it with the time and a number used once.
const (
	SecurityText   = "username_text"
	SecurityDigest = "username_digest"
)

// SOAPCall says what an envelope has beside its body.
type SOAPCall struct {
	// Action is a template: the header SOAPAction, in version 1.2 the parameter action of the content type.
	Action string `yaml:"action"`
	// Header is a JSON template of an object: the elements of the envelope's header.
	Header JSON `yaml:"header"`
}

// GraphQL is the operation of a call.
type GraphQL struct {
	// Query is a document with one operation, a query or mutation; it holds no expression.
	Query string `yaml:"query"`
	// Variables is a JSON template of an object.
	Variables JSON `yaml:"variables"`
	// Mutation is filled in when the catalog is loaded.
	Mutation bool `yaml:"-"`
}

var prefix = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

func (ch *checker) soap(s *Service, at path) {
	if s.Protocol != ProtocolSOAP {
		if s.SOAP != nil {
			ch.fail(at.to("soap"), "only a service of protocol SOAP has envelopes")
		}
		return
	}
	if s.SOAP == nil {
		s.SOAP = &SOAP{}
	}
	here := at.to("soap")
	if s.SOAP.Version == "" {
		s.SOAP.Version = "1.1"
	}
	oneOf(ch, here, "version", s.SOAP.Version, []string{"1.1", "1.2"})
	oneOf(ch, here, "security", s.SOAP.Security, []string{"", SecurityText, SecurityDigest})
	if s.SOAP.Security != "" && s.AuthMethod != "basic_auth" {
		ch.fail(here.to("security"), "a UsernameToken is made of a credential of auth_method basic_auth")
	}
	for _, name := range slices.Sorted(maps.Keys(s.SOAP.Namespaces)) {
		if !prefix.MatchString(name) || name == "soap" || name == "wsse" || name == "wsu" ||
			s.SOAP.Namespaces[name] == "" {
			ch.fail(here.to("namespaces", name),
				"%q must be a prefix other than soap, wsse and wsu, and its namespace not empty", name)
		}
	}
}

// protocol fills in what the protocol of a service says of every call.
func (ch *checker) protocol(s *Service, a *Action, at path) {
	call := a.Call
	if call.SOAP != nil && s.Protocol != ProtocolSOAP {
		ch.fail(at.to("soap"), "only a service of protocol SOAP has envelopes")
	}
	if (call.GraphQL != nil) != (s.Protocol == ProtocolGraphQL) {
		ch.fail(at, "a call of a service of protocol GraphQL, and only that, needs a graphql block")
		return
	}
	if s.Protocol != ProtocolSOAP && s.Protocol != ProtocolGraphQL {
		return
	}
	if call.Method == "" {
		call.Method = "POST"
	}
	if call.BodyForm != "" {
		ch.fail(at.to("body_form"), "protocol %s says how a body is written", s.Protocol)
	}
	if len(call.Answer.Success)+len(call.Answer.Pending) == 0 {
		call.Answer.Success = []int{200}
	}
	if s.Protocol == ProtocolGraphQL {
		ch.graphQL(call, at)
		return
	}
	call.BodyForm = BodySOAP
	if call.SOAP == nil {
		call.SOAP = &SOAPCall{}
	}
	if len(call.Body) == 0 || call.Body[0] != '{' {
		ch.fail(at.to("body"), "the body must be an object of the elements in the envelope's body")
	}
}

// graphQL checks the document and makes the body of it.
func (ch *checker) graphQL(call *Call, at path) {
	here := at.to("graphql")
	if len(call.Body) > 0 {
		ch.fail(at.to("body"), "the body is made of the graphql block")
	}
	if strings.Contains(call.GraphQL.Query, "{{") {
		ch.fail(here.to("query"), "a query holds no expression; pass values as variables")
		return
	}
	doc, err := parser.ParseQuery(&ast.Source{Name: "query", Input: call.GraphQL.Query})
	switch {
	case err != nil:
		ch.fail(here.to("query"), "%s", oneLine(err))
		return
	case len(doc.Operations) != 1 || doc.Operations[0].Operation == ast.Subscription:
		ch.fail(here.to("query"), "a query has one operation, a query or a mutation")
		return
	}
	call.GraphQL.Mutation = doc.Operations[0].Operation == ast.Mutation
	variables := call.GraphQL.Variables
	if len(variables) == 0 {
		variables = JSON("{}")
	}
	if variables[0] != '{' {
		ch.fail(here.to("variables"), "variables must be an object: the value of each by its name")
		return
	}
	query, err := marshalPlain(call.GraphQL.Query)
	if err != nil {
		ch.fail(here.to("query"), "%v", err)
		return
	}
	call.Body = append(append(append(append(JSON(`{"query":`), query...), `,"variables":`...), variables...), '}')
}
