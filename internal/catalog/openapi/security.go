package openapi

import (
	"strings"

	"flowlane/internal/catalog"
)

// auth is how the calls of a service authenticate.
type auth struct {
	method string
	// scheme is the name in the document; "" for none.
	scheme string
	// hint says how the credential must be made.
	hint string
	// in and name are where the secret goes; a parameter of that name is the secret.
	in, name string
}

var noAuth = auth{method: "none"}

// authOf chooses among the ways to authenticate that an operation offers: the first with one secret that calls can carry,
// else none where that is allowed. why says what is the matter where there is neither.
func (im *importer) authOf(operation place) (chosen auth, why string) {
	security := operation.at("security")
	if security.node == nil {
		security = im.root.at("security")
	}
	ways := security.children()
	if len(ways) == 0 {
		return noAuth, ""
	}
	open, found := false, false
	for _, way := range ways {
		schemes := way.children()
		switch {
		case len(schemes) == 0:
			open = true
			continue
		case len(schemes) > 1:
			why = "calls carry one secret, and this needs several at once"
			im.report.add(Dropped, way, why)
			continue
		case found:
			im.report.add(Changed, way, "another way to authenticate is used, not this one")
			continue
		}
		a, problem := im.scheme(lastStep(way, schemes[0]))
		if problem != "" {
			why = problem
			im.report.add(Dropped, schemes[0], problem)
			continue
		}
		chosen, found = a, true
	}
	switch {
	case found:
		return chosen, ""
	case open:
		return noAuth, ""
	}
	return auth{}, why
}

func (im *importer) scheme(name string) (auth, string) {
	at := im.root.at("components").at("securitySchemes").at(name)
	if at.node == nil {
		return auth{}, "there is no security scheme " + strconvQuote(clip(name, 100))
	}
	im.touch(at.pointer)
	at, ok := im.follow(at)
	if !ok {
		return auth{}, "the security scheme cannot be read"
	}
	a := auth{scheme: name, in: "header", name: "Authorization"}
	kind, http := at.get("type").str(), strings.ToLower(at.get("scheme").str())
	switch {
	case at.get("x-amazon-apigateway-authtype").str() == "awsSigv4":
		return auth{}, "calls of imported services are not signed for AWS"
	case kind == "apiKey" && (at.get("in").str() == "header" || at.get("in").str() == "query") && at.get("name").str() != "":
		a.method, a.in, a.name = "api_key", at.get("in").str(), clip(at.get("name").text, maxName)
		if a.in == "header" {
			a.hint = "The credential's api_key_placement is header_name " + a.name + "."
		} else {
			a.hint = "The credential's api_key_placement is query_param " + a.name + "."
		}
	case kind == "http" && http == "basic":
		a.method = "basic_auth"
	case kind == "http" && http == "bearer":
		a.method, a.hint = "api_key", bearerHint
	case kind == "oauth2" && catalog.Callable("oauth2") && at.at("flows").at("clientCredentials").node != nil:
		a.method = "oauth2"
		a.hint = "Token URL: " + clip(at.at("flows").at("clientCredentials").get("tokenUrl").str(), 300) + "."
	case kind == "oauth2" || kind == "openIdConnect":
		a.method, a.hint = "api_key", bearerHint
		im.report.add(Changed, at, "the access token of "+kind+" is the credential's API key; it is neither fetched nor renewed")
	default:
		return auth{}, "calls cannot authenticate by a scheme of this kind: " + clip(strings.TrimSpace(kind+" "+http+" "+at.get("in").str()), 100)
	}
	return a, ""
}

const bearerHint = "The credential's api_key_placement is header_name Authorization with scheme Bearer."

// fields describes what a credential holds.
func (a auth) fields() *node {
	out := list()
	for _, name := range catalog.SecretFields(a.method) {
		kind, secret := "password", "true"
		if name == "username" || name == "client_id" || name == "token_url" {
			kind, secret = "string", "false"
		}
		out.set("", object("name", text(name), "label", text(labelOf(name)), "type", text(kind), "required", boolean(true), "secret", &node{kind: isBool, text: secret}))
	}
	return out
}

func labelOf(name string) string {
	label := strings.ReplaceAll(name, "_", " ")
	return strings.ReplaceAll(strings.ToUpper(label[:1])+label[1:], "Api key", "API key")
}

func boolean(v bool) *node {
	if v {
		return &node{kind: isBool, text: "true"}
	}
	return &node{kind: isBool, text: "false"}
}
