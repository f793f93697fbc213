package platformsim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/internal/expr"
	xmlreader "flowlane/internal/media"
	"flowlane/internal/platform/catalog"
)

// call is one request and what becomes of it.
type call struct {
	sim  *Sim
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	// form: the body is a form, XML or CSV, and was no JSON before.
	form  bool
	route *route
	// input is the request as templates see it, vars what they see beside it.
	input json.RawMessage
	vars  map[string]any
	// job is the one that the request is about, as it was found; nil for none.
	job *job
	// credential is what the request was signed with.
	credential string
}

// xmlBounds are how much XML is understood.
var xmlBounds = xmlreader.Bounds{Depth: 32, Parts: 5_000_000}

type headers = map[string]string

// parsed is the body as templates see it, by its type.
func (c *call) parsed() (body any, err error) {
	media, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	switch {
	case len(bytes.TrimSpace(c.body)) == 0:
		return nil, nil
	case media == "application/x-www-form-urlencoded":
		c.form = true
		fields, err := url.ParseQuery(string(c.body))
		if err != nil {
			return nil, errors.New("the form cannot be read")
		}
		return flat(fields), nil
	case strings.HasSuffix(media, "xml"):
		c.form = true
		document, ok := xmlreader.XML(c.body, xmlreader.Reading{Bounds: xmlBounds, Local: true,
			Lists: c.sim.profile.Lists})
		if !ok {
			return nil, errors.New("the body is no XML, or has a DOCTYPE")
		}
		return json.RawMessage(document), nil
	case strings.HasSuffix(media, "csv"):
		c.form = true
		lines, ok := xmlreader.CSV(c.body, xmlBounds)
		if !ok {
			return nil, errors.New("the body is no CSV")
		}
		return json.RawMessage(lines), nil
	case gjson.ValidBytes(c.body):
		return json.RawMessage(c.body), nil
	case strings.HasSuffix(media, "json"):
		return nil, errors.New("the body is no JSON")
	}
	return string(c.body), nil
}

// read finds out what the request is.
func (c *call) read() error {
	body, err := c.parsed()
	if err != nil {
		return err
	}
	names := headers{}
	for name, values := range c.r.Header {
		names[strings.ToLower(name)] = values[0]
	}
	c.credential = c.presented()
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	path := map[string]string{}
	seen := map[string]any{"method": c.r.Method, "query": flat(c.r.URL.Query()), "headers": names,
		"body": json.RawMessage(encoded)}
	for _, r := range c.sim.routes {
		found, ok := r.match(c.r.URL.EscapedPath())
		if r.Method != c.r.Method || !ok {
			continue
		}
		path = found
		seen["path"] = path
		if c.input, err = json.Marshal(seen); err != nil {
			return fmt.Errorf("the request cannot be read: %w", err)
		}
		if r.when != nil {
			if holds, err := r.when.Eval(&expr.Env{Input: c.input}); err != nil || !holds {
				continue
			}
		}
		c.route = r
		break
	}
	seen["path"] = path
	c.input, err = json.Marshal(seen)
	c.start()
	return err
}

// flat makes one value of each name, an array of those that stand several times.
func flat(fields url.Values) map[string]any {
	out := map[string]any{}
	for name, values := range fields {
		if len(values) == 1 {
			out[name] = values[0]
		} else {
			out[name] = values
		}
	}
	return out
}

// serve carries the request out, in the order in which platforms look at one.
func (c *call) serve() {
	switch {
	case c.route == nil:
		c.refuse(answerMissing, problem{"not_found", "There is no operation " + c.r.Method + " " + c.r.URL.Path + "."})
		return
	case c.struck():
		return
	case !c.route.Public && !c.allowed():
		c.refuse(answerUnauthorized, problem{"unauthorized", "The credential is missing or not accepted."})
		return
	}
	if bad := c.violation(); bad != nil {
		c.refuse(answerInvalid, *bad)
		return
	}
	leave, spent := c.enter()
	defer leave()
	if spent != nil {
		c.limited(spent)
		return
	}
	if c.repeated() {
		return
	}
	if c.route.job != nil && !c.findJob() {
		c.refuse(answerMissing, problem{"not_found", "There is no such job."})
		return
	}
	if len(c.route.Needs) > 0 && !slices.Contains(c.route.Needs, c.job.State) {
		c.refuse(answerInvalid, problem{"invalid_state", "The job is " + c.job.State + "."})
		return
	}
	if counters := c.sim.platform.Account; counters != nil && counters.Counters != nil &&
		c.route.Action == counters.Counters.Action {
		c.vars["counters"] = c.counters()
	}
	name, why := c.accept()
	if name != answerSuccess {
		c.refuse(name, why)
		return
	}
	c.finish(answerSuccess)
}

func (c *call) violation() *problem {
	if d := c.sim.document; d != nil {
		if err := d.request(c.r, c.body); err != nil {
			return &problem{"invalid_request", err.Error()}
		}
	}
	return c.route.violation(c.body, c.form)
}

// presented is the credential of a request, empty for none: where the catalog has a key of the service, else the header
// Authorization.
func (c *call) presented() string {
	for _, svc := range c.sim.platform.Services {
		for _, auth := range svc.Auths() {
			if text := c.keyOfMethod(auth); text != "" {
				return text
			}
		}
	}
	return ""
}

func (c *call) keyOfMethod(auth catalog.Auth) string {
	switch {
	case auth.Query != "":
		return c.r.URL.Query().Get(auth.Query)
	case auth.Cookie != "":
		if cookie, err := c.r.Cookie(auth.Cookie); err == nil {
			return cookie.Value
		}
		return ""
	case auth.Header != "":
		text, prefix := c.r.Header.Get(auth.Header), auth.Scheme
		if prefix != "" {
			prefix += " "
		}
		if text, ok := strings.CutPrefix(text, prefix); ok {
			return strings.TrimSpace(text)
		}
		return ""
	case auth.Method == "basic_auth":
		if user, password, ok := c.r.BasicAuth(); ok && password != "" {
			return user + ":" + password
		}
		return ""
	}
	if user, password, ok := c.r.BasicAuth(); ok { // who asks for a token
		return user + ":" + password
	}
	return strings.TrimSpace(strings.TrimPrefix(c.r.Header.Get("Authorization"), "Bearer "))
}

// BadCredential begins every secret that platforms refuse: a token, a key, or the password of Basic.
const BadCredential = "bad-"

func (c *call) allowed() bool {
	if c.route.service.AuthMethod == "none" {
		return true
	}
	_, password, _ := strings.Cut(c.credential, ":")
	return c.credential != "" && !strings.HasPrefix(c.credential, BadCredential) && !strings.HasPrefix(password,
		BadCredential)
}

// repeated answers a request that came before with the same key, as the first was answered.
func (c *call) repeated() bool {
	if c.route.Idempotency == "" {
		return false
	}
	key := c.r.Header.Get(c.route.Idempotency)
	if key == "" {
		return false
	}
	c.sim.mu.Lock()
	before, ok := c.sim.log.keys[c.credential+" "+key]
	c.sim.mu.Unlock()
	switch {
	case !ok:
		return false
	case before.print != c.print():
		c.refuse(answerConflict, problem{"idempotency_error", "The key came with another request before."})
	default:
		c.count(func(l *ledger) { l.totals.Replayed++ })
		before.reply.write(c.w)
	}
	return true
}

func (c *call) count(change func(l *ledger)) { c.sim.count(change) }

func (c *call) print() string {
	return c.r.Method + " " + c.r.URL.Path + " " + base64.StdEncoding.EncodeToString(c.body)
}
