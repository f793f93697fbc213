package openapi

import (
	"net/url"
	"strings"
)

// baseURL returns the address that an operation's path is joined to: the first server of the operation, else of the
// path, else of the document. It is "" where there is none, and why then says what is the matter.
func (im *importer) baseURL(operation, item place) (base, why string) {
	servers := im.root.at("servers")
	for _, p := range []place{operation.at("servers"), item.at("servers")} {
		if len(p.children()) > 0 {
			servers = p
			break
		}
	}
	all := servers.children()
	raw := "/" // what OpenAPI takes where no server is named
	if len(all) > 0 {
		for _, other := range all[1:] {
			im.report.add(Changed, other, "the first server is used, not this one")
		}
		if raw, why = im.fillServer(all[0]); why != "" {
			return "", why
		}
	}
	address, err := url.Parse(raw)
	if err != nil {
		return "", "the server is no address: " + clip(raw, 200)
	}
	if !address.IsAbs() {
		if im.base == nil {
			return "", "the server " + strconvQuote(clip(raw, 200)) +
				" is relative to where the document came from: name that address with --base-url"
		}
		address = im.base.ResolveReference(address)
	}
	if (address.Scheme != "http" && address.Scheme != "https") || address.Host == "" || address.User != nil ||
		address.RawQuery != "" || address.Fragment != "" {
		return "", "the server must be a plain http or https address: " + clip(raw, 200)
	}
	return strings.TrimRight(address.String(), "/"), ""
}

// fillServer puts the defaults of its variables into a server's address.
func (im *importer) fillServer(server place) (raw, why string) {
	for _, f := range server.children() {
		switch lastStep(server, f) {
		case "url", "description", "variables":
		default:
			im.report.add(Dropped, f, "the catalog has no place for it")
		}
	}
	raw = server.get("url").str()
	for _, variable := range server.at("variables").children() {
		name := "{" + lastStep(server.at("variables"), variable) + "}"
		value := variable.get("default")
		if !value.is(isString) && !value.is(isNumber) {
			return "", "server variable " + clip(name, 100) + " has no default"
		}
		if strings.Contains(raw, name) {
			raw = strings.ReplaceAll(raw, name, value.text)
			im.report.add(Changed, variable, "the base URL holds the default of this variable: "+
				strconvQuote(clip(value.text, 200)))
		}
	}
	if strings.ContainsAny(raw, "{}") {
		return "", "the server names a variable that is not described: " + clip(raw, 200)
	}
	return strings.TrimSpace(raw), ""
}
