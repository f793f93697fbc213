package openapi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"flowlane/internal/platform/catalog"
)

// auth is how the calls of a service authenticate.
type auth struct {
	method string
	// scheme is the name in the document; "" for none.
	scheme string
	// signIn says where the secret goes; nil where the method says it.
	signIn *node
	// grant is that of oauth2; empty for other methods.
	grant string
	// in and name are where the secret goes; a parameter of that name is the secret.
	in, name string
	// effort is how much is left to whoever makes the credential: 0 for a secret that stays as it is, 1 for one that
	// gets tokens by itself, 2 where a person must say so first, 3 for a token that nobody renews.
	effort int
}

var noAuth = auth{method: "none"}

// authOf chooses among the ways to authenticate that an operation offers: of those with one secret that calls can carry
// the one that the caller prefers, else none where that is allowed. why says what is the matter where there is neither.
func (im *importer) authOf(operation place) (chosen auth, why string) {
	ways := im.ways(operation)
	if len(ways) == 0 {
		return noAuth, ""
	}
	var usable []auth
	var from []place
	var offered []string
	open := false
	for _, way := range ways {
		schemes := way.children()
		if len(schemes) == 0 {
			open = true
			continue
		}
		if len(schemes) > 1 {
			why = "calls carry one secret, and this needs several at once"
			im.report.add(Dropped, way, why)
			continue
		}
		name := lastStep(way, schemes[0])
		offered = append(offered, name)
		a, problem := im.scheme(name)
		if problem != "" {
			why = problem
			im.report.add(Dropped, schemes[0], problem)
			continue
		}
		usable, from = append(usable, a), append(from, way)
	}
	best := im.prefer(usable)
	switch {
	case best >= 0:
		for i, way := range from {
			if i != best {
				im.report.add(Changed, way, "calls authenticate by "+clip(usable[best].scheme, 100)+"; --auth "+
					clip(usable[i].scheme, 100)+" takes this way instead")
			}
		}
		return usable[best], ""
	case open:
		return noAuth, ""
	case why == "":
		why = "it does not take the way to authenticate that was asked for; --auth " +
			clip(strings.Join(offered, " or --auth "), 200) + " takes it in"
	}
	return auth{}, why
}

// ways are the alternatives of an operation: its own, else those of the document.
func (im *importer) ways(operation place) []place {
	security := operation.at("security")
	if security.node == nil {
		security = im.root.at("security")
	}
	return security.children()
}

// prefer returns the index of the way that is taken; -1 for none. The caller's choice comes first. Without one, a
// secret that never changes is better than a token that somebody must renew, and a scheme that many operations take is
// better than one of few: most of the platform then works with one credential.
func (im *importer) prefer(usable []auth) int {
	if len(im.auth) > 0 {
		for _, name := range im.auth {
			if i := slices.IndexFunc(usable, func(a auth) bool { return a.scheme == name }); i >= 0 {
				return i
			}
		}
		return -1
	}
	best := -1
	for i, a := range usable {
		if best < 0 || a.effort < usable[best].effort ||
			(a.effort == usable[best].effort && im.offers[a.scheme] > im.offers[usable[best].scheme]) {
			best = i
		}
	}
	return best
}

// countOffers counts the operations that take each security scheme by itself, and checks the caller's choice.
func (im *importer) countOffers() error {
	im.offers = map[string]int{}
	for _, item := range im.root.at("paths").children() {
		item, ok := im.find(firstText(item.get("$ref").str(), "#"+item.pointer))
		if !ok {
			continue
		}
		for _, method := range methods {
			if op := item.at(method); op.is(isObject) {
				for _, way := range im.ways(op) {
					if schemes := way.children(); len(schemes) == 1 {
						im.offers[lastStep(way, schemes[0])]++
					}
				}
			}
		}
	}
	known := im.root.at("components").at("securitySchemes")
	for _, name := range im.auth {
		if known.get(name) == nil {
			names := make([]string, 0, len(known.children()))
			for _, scheme := range known.children() {
				names = append(names, lastStep(known, scheme))
			}
			return fmt.Errorf("the document has no security scheme %s; it has: %s", strconvQuote(clip(name, 100)),
				clip(firstText(strings.Join(names, ", "), "none"), 1000))
		}
	}
	return nil
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
		// of API Gateway, whose extension this is
		a.method, a.signIn = "aws_access_key", object("aws_service", text("execute-api"))
	case kind == "apiKey" && keyPlaces[at.get("in").str()] && keyName.MatchString(at.get("name").str()):
		a.method, a.in, a.name = "api_key", at.get("in").str(), at.get("name").text
		a.signIn = object(a.in, text(a.name))
	case kind == "http" && http == "basic":
		a.method = "basic_auth"
	case kind == "http" && http == "bearer":
		a.method, a.signIn = "api_key", bearer()
	case kind == "oauth2" && a.granted(at.at("flows")):
	case kind == "oauth2" || kind == "openIdConnect":
		a.method, a.signIn, a.effort = "api_key", bearer(), 3
		im.report.add(Changed, at, "the access token of "+kind+
			" is the credential's API key; it is neither fetched nor renewed")
	default:
		return auth{}, "calls cannot authenticate by a scheme of this kind: " +
			clip(strings.TrimSpace(kind+" "+http+" "+at.get("in").str()), 100)
	}
	return a, ""
}

// grants are the flows of oauth2 by which credentials get their tokens, what is easiest first.
var grants = []struct {
	flow, grant string
	effort      int
}{{"clientCredentials", "client_credentials", 1}, {"authorizationCode", "authorization_code", 2},
	{"password", "password", 2}}

// granted has tokens got by the first flow of a scheme that can be; false where there is none. Addresses that are not
// whole each credential says.
func (a *auth) granted(flows place) bool {
	for _, g := range grants {
		flow := flows.at(g.flow)
		if flow.node == nil {
			continue
		}
		a.method, a.grant, a.effort, a.signIn = "oauth2", g.grant, g.effort, object("grant_type", text(g.grant))
		token, page := flow.get("tokenUrl").str(), flow.get("authorizationUrl").str()
		if !wholeAddress.MatchString(token) || g.grant == "authorization_code" && !wholeAddress.MatchString(page) {
			return true
		}
		a.signIn.set("token_url", text(token))
		if g.grant == "authorization_code" {
			a.signIn.set("authorize_url", text(page))
		}
		return true
	}
	return false
}

// wholeAddress is one that calls can go to as it is.
var wholeAddress = regexp.MustCompile(`^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$`)

// keyPlaces are where a key can go, keyName what its header, parameter or cookie may be called.
var (
	keyPlaces = map[string]bool{"header": true, "query": true, "cookie": true}
	keyName   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}$")
)

func bearer() *node { return object("header", text("Authorization"), "scheme", text("Bearer")) }

// fields describes what a credential holds.
func (a auth) fields() *node {
	out := list()
	add := func(name string, required bool) {
		kind, open := "password", slices.Contains(openFields, name)
		if open {
			kind = "string"
		}
		out.set("", object("name", text(name), "label", text(labelOf(name)), "type", text(kind), "required",
			boolean(required), "secret", boolean(!open)))
	}
	for _, name := range catalog.SecretFields(a.method, a.grant) {
		add(name, true)
	}
	if a.grant == "authorization_code" || a.grant == "password" { // a client may keep no secret
		add("client_secret", false)
	}
	return out
}

// openFields are those of credentials that are no secrets.
var openFields = []string{"username", "client_id", "access_key_id", "region"}

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
