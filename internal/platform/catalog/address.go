package catalog

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Label fills the place {name} in the base URLs of its platform. The base URL is the pattern that all addresses keep
// to: a label is a part of the host between dots, or one segment of the path, and nothing that it holds leads out of
// these.
type Label struct {
	// One of Field, Setting and Token says where its text stands: in a field of the credential, in a setting of the
	// credential (aws_region), or in a field of the answer with the access token.
	Field   string `yaml:"field"`
	Setting string `yaml:"setting"`
	Token   string `yaml:"token"`
	// Match is a regular expression that the whole text must match; its one group is the value, which may then hold
	// dots. Without it the text itself is the value.
	Match string `yaml:"match"`
	// Values are all that the value may be; empty for any.
	Values []string `yaml:"values"`
	// Default is the value where the text is empty.
	Default string `yaml:"default"`

	match *regexp.Regexp
}

// Known are the texts that labels are filled from, by the names of their sources. A map that is nil is not known yet:
// its labels become Open.
type Known struct{ Fields, Settings, Token map[string]string }

// Open stands in an address for a label that is not known yet. No host can be called so.
const Open = "*"

// LabelError says that a text cannot fill a label. It does not quote the text.
type LabelError struct {
	// Field is the field of the credential that has the text; empty where it stands elsewhere.
	Field string
	text  string
}

func (e *LabelError) Error() string { return e.text }

var (
	labelPlace = regexp.MustCompile(`\{([^{}]*)\}`)
	hostLabel  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// Address is the base URL with its labels filled. The error is a *LabelError.
func (s *Service) Address(known Known) (string, error) { return s.Located(s.BaseURL, known) }

// Located is an address of the platform with its labels filled: nothing that they hold leads out of its pattern. The
// error is a *LabelError.
func (s *Service) Located(pattern string, known Known) (string, error) {
	if !strings.Contains(pattern, "{") {
		return pattern, nil
	}
	host, path := splitBase(pattern)
	atHost, badHost := s.fillAll(host, "address "+pattern, known, inHost)
	atPath, err := s.fillAll(path, "address "+pattern, known, inPath)
	if badHost != nil {
		err = badHost
	}
	return atHost + atPath, err
}

// Header is the value of a header with its labels filled. The error is a *LabelError.
func (s *Service) Header(value string, known Known) (string, error) {
	return s.fillAll(value, "header "+value, known, inHeader)
}

// fillAll fills the labels in a part of what errors call of.
func (s *Service) fillAll(part, of string, known Known, clean func(*Label, string) (string, bool)) (string, error) {
	var failed error
	filled := labelPlace.ReplaceAllStringFunc(part, func(place string) string {
		name := place[1 : len(place)-1]
		value, err := s.fill(name, of, s.Labels[name], known, clean)
		if err != nil {
			failed = err
		}
		return value
	})
	return filled, failed
}

// splitBase parts an address before its path.
func splitBase(base string) (host, path string) {
	scheme, rest, _ := strings.Cut(base, "://")
	name, path, found := strings.Cut(rest, "/")
	if found {
		path = "/" + path
	}
	return scheme + "://" + name, path
}

func (s *Service) fill(name, of string, l *Label, known Known,
	clean func(*Label, string) (string, bool)) (string, error) {
	source, from := l.source(known)
	if from == nil {
		return Open, nil
	}
	text := from[source]
	value := text
	if l.match != nil && text != "" {
		if value = ""; l.match.MatchString(text) {
			value = l.match.FindStringSubmatch(text)[1]
		}
	}
	if text == "" {
		value = l.Default
	}
	value, ok := clean(l, value)
	if !ok || len(l.Values) > 0 && !slices.Contains(l.Values, value) {
		return "", &LabelError{Field: l.Field, text: fmt.Sprintf("%s does not give the %s of the %s", source, name, of)}
	}
	return value, nil
}

func (l *Label) source(known Known) (name string, from map[string]string) {
	switch {
	case l.Field != "":
		return l.Field, known.Fields
	case l.Setting != "":
		return l.Setting, known.Settings
	}
	return l.Token, known.Token
}

// inHost returns a value as it stands in a host.
func inHost(l *Label, value string) (string, bool) {
	if slices.Contains(l.Values, value) {
		return value, true
	}
	value = strings.ToLower(value)
	parts := strings.Split(value, ".")
	bad := func(part string) bool { return !hostLabel.MatchString(part) }
	return value, (l.match != nil || len(parts) == 1) && len(value) <= 200 && !slices.ContainsFunc(parts, bad)
}

// inPath returns a value as it stands in a path.
func inPath(_ *Label, value string) (string, bool) {
	return url.PathEscape(value), value != "" && value != "." && value != ".."
}

// inHeader returns a value as it stands in a header.
func inHeader(_ *Label, value string) (string, bool) {
	return value, value != "" && len(value) <= 1000 && headerText.MatchString(value)
}

// labels checks the labels of the platform and prepares them.
func (ch *checker) labels() {
	for _, name := range slices.Sorted(maps.Keys(ch.p.Labels)) {
		l, at := ch.p.Labels[name], path{"labels", name}
		if l == nil || !slug.MatchString(name) {
			ch.fail(at, "label %q must be a slug with a source", name)
			delete(ch.p.Labels, name)
			continue
		}
		sources := 0
		for _, source := range []string{l.Field, l.Setting, l.Token} {
			if source != "" {
				sources++
			}
		}
		if sources != 1 {
			ch.fail(at, "a label needs one of field, setting and token")
		}
		if l.Setting != "" {
			oneOf(ch, at, "setting", l.Setting, []string{"aws_region"})
		}
		ch.labelField(l, at)
		if l.Match == "" {
			continue
		}
		compiled, err := regexp.Compile(`^(?:` + l.Match + `)$`)
		if err != nil || compiled.NumSubexp() != 1 {
			ch.fail(at.to("match"), "match must be a regular expression with one group, the value")
			continue
		}
		l.match = compiled
	}
}

// labelField checks the field that a label comes from. What a label takes of it shows in addresses.
func (ch *checker) labelField(l *Label, at path) {
	if l.Field == "" {
		return
	}
	found := false
	var fields []CredentialField
	for _, s := range ch.p.Services {
		for _, a := range s.Auths() {
			fields = append(fields, a.Fields...)
		}
	}
	for _, f := range fields {
		if f.Name != l.Field {
			continue
		}
		found = true
		if f.Secret && l.Match == "" {
			ch.fail(at, "a label of the secret field %q needs a match: its value is no secret", l.Field)
		}
	}
	if !found {
		ch.fail(at.to("field"), "no service has the credential field %q", l.Field)
	}
}

// baseURL checks an address with labels.
func (ch *checker) baseURL(s *Service, at path) {
	if s.Kind != kindMCP { // whose address is an endpoint as it is
		s.BaseURL = strings.TrimRight(s.BaseURL, "/")
	}
	s.Labels = ch.p.Labels
	ch.pattern(s, s.BaseURL, at, "base_url", true)
}

// pattern checks an address with labels. token: those that a token's answer fills may be among them.
func (ch *checker) pattern(s *Service, address string, at path, key string, token bool) {
	if address == "" {
		return
	}
	if msg := badBaseURL(labelPlace.ReplaceAllString(address, "label")); msg != "" {
		ch.fail(at.to(key), "%s: %s", key, msg)
		return
	}
	host, _ := splitBase(address)
	for _, m := range ch.places(s, address, at.to(key), key, token) {
		_, behind, inHost := strings.Cut(host, m)
		l := ch.p.Labels[m[1:len(m)-1]]
		if !inHost && l.Token != "" {
			ch.fail(at.to(key), "%s: %s is known once there is a token, and can stand in the host alone", key, m)
		}
		if inHost && len(l.Values) == 0 && (!strings.HasPrefix(behind, ".") || strings.Count(behind, ".") < 2) {
			ch.fail(at.to(key), "%s: behind %s must stand the domain that all addresses share, or list its values", key,
				m)
		}
	}
}

// places checks that the labels in a text are there, and returns their places. token: those that a token's answer fills
// may be.
func (ch *checker) places(s *Service, text string, at path, key string, token bool) (places []string) {
	for _, m := range labelPlace.FindAllStringSubmatch(text, -1) {
		l, declared := ch.p.Labels[m[1]]
		switch {
		case !declared:
			ch.fail(at, "%s: the platform has no label %q", key, m[1])
			continue
		case s.AuthMethod == "none":
			ch.fail(at, "%s: a label needs a credential that fills it", key)
		case l.Token != "" && !token:
			ch.fail(at, "%s: {%s} is known only once there is a token", key, m[1])
		}
		places = append(places, m[0])
	}
	return places
}

// originPattern is an origin of a call's address, of one host or of all below a domain that nobody else hands out.
var originPattern = regexp.MustCompile(`^https?://(\*\.[a-z0-9-]+\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?$`)

// origins checks where the address of a call may lead.
func (ch *checker) origins(call *Call, at path) {
	if len(call.Origins) > 0 && call.URL == "" {
		ch.fail(at.to("origins"), "origins bound the address that url gives")
	}
	for i, pattern := range call.Origins {
		if !originPattern.MatchString(pattern) {
			ch.fail(at.to("origins", i),
				"%q is no origin such as https://files.example.com, or https://*.example.com for all hosts below",
				pattern)
		}
	}
}

// MayReach reports whether an address is at one of the origins that the call is bound to, if it is.
func (c *Call) MayReach(address *url.URL) bool {
	origin := address.Scheme + "://" + strings.ToLower(address.Host)
	return len(c.Origins) == 0 || slices.ContainsFunc(c.Origins, func(pattern string) bool {
		scheme, domain, below := strings.Cut(pattern, "*")
		if !below {
			return origin == pattern
		}
		host, found := strings.CutPrefix(origin, scheme)
		name, ends := strings.CutSuffix(host, domain)
		return found && ends && name != ""
	})
}
