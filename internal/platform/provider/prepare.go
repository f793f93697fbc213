package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"flowlane/internal/expr"
	"flowlane/internal/platform/catalog"
)

// ErrParams is wrapped by the errors about parameters that make no request. Such a call was not and will not be sent;
// the text may be shown to the author of the flow.
var ErrParams = errors.New("the parameters make no valid request")

const userAgent = "flowlane"

// Prepare renders the call of an action. rows is the JSON array of a bulk call as it goes out, nil for a single record;
// it is referred to, not copied. idempotencyKey is sent where the action asks for one. Errors wrap ErrParams or
// ErrSecretShape. The deadlines of the request are left to the caller.
func Prepare(svc *catalog.Service, act *catalog.Action, params json.RawMessage, rows []byte, secret Secret,
	idempotencyKey string) (Request, error) {
	r, err := prepare(svc, act, params, rows, secret, idempotencyKey, unopened)
	if err == nil && act.Call.Job != nil {
		r.job, err = newJob(svc, act, params, secret)
	}
	return r, err
}

// prepare renders a call; reference is that of the job which it is a part of.
func prepare(svc *catalog.Service, act *catalog.Action, params json.RawMessage, rows []byte, secret Secret,
	idempotencyKey, reference string) (Request, error) {
	call := act.Call
	if call == nil {
		return Request{}, fmt.Errorf("action %s makes no calls", act.ID)
	}
	if (rows != nil) != act.Bulk {
		return Request{}, fmt.Errorf("action %s: rows go with bulk actions only", act.ID)
	}
	if call.Tool != "" {
		return prepareTool(svc, call, params, secret)
	}
	p := preparer{svc: svc, call: call, env: &expr.Env{Params: secret.fill(params),
		Reference: json.RawMessage(quote(reference))}, key: idempotencyKey}
	if call.Command != "" {
		return p.command()
	}
	header, err := headersOf(svc, secret)
	if err != nil {
		return Request{}, err
	}
	r := Request{PlatformID: svc.PlatformID, Header: header, rows: rows}
	if r.Method, err = p.text("method", call.Compiled.Method); err != nil {
		return Request{}, err
	}
	if !validMethod(r.Method) {
		return Request{}, fmt.Errorf("%w: method must be an HTTP method such as GET or POST", ErrParams)
	}
	base, err := secret.base(svc)
	if err != nil {
		return Request{}, err
	}
	if r.URL, err = p.address(base); err != nil {
		return Request{}, err
	}
	if err = p.body(&r, rows); err != nil {
		return Request{}, err
	}
	if err = p.headers(&r); err != nil {
		return Request{}, err
	}
	if r.aws.service, err = p.text("aws_service", call.Compiled.AWSService); err != nil {
		return Request{}, err
	}
	if r.aws.region, err = p.text("aws_region", call.Compiled.AWSRegion); err != nil {
		return Request{}, err
	}
	if r.outcomes, err = p.outcomes(); err != nil {
		return Request{}, err
	}
	if err = secret.apply(svc, &r); err != nil {
		return Request{}, err
	}
	return r, nil
}

// headersOf are the headers that every call of a service has, with the labels that the secret fills. The error wraps
// ErrSecretShape.
func headersOf(svc *catalog.Service, secret Secret) (http.Header, error) {
	h := http.Header{"User-Agent": {userAgent}, "Accept": {"application/json"}}
	for name, value := range svc.Headers {
		value, err := svc.Header(value, secret.open().known)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSecretShape, err)
		}
		h.Set(name, value)
	}
	return h, nil
}

func validMethod(m string) bool {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return true
	}
	return false
}

type preparer struct {
	svc  *catalog.Service
	call *catalog.Call
	env  *expr.Env
	// key is that by which the provider knows the call if it is sent again; empty for none.
	key string
}

// render evaluates a template; nil stays nil. An error names the place in the call.
func (p *preparer) render(place string, t *expr.Template) (json.RawMessage, error) {
	if t == nil {
		return nil, nil
	}
	out, err := t.Append(nil, p.env)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrParams, place, err)
	}
	return out, nil
}

// text renders a template whose value is a string, a number or true or false; null is the empty text.
func (p *preparer) text(place string, t *expr.Template) (string, error) {
	raw, err := p.render(place, t)
	if err != nil || raw == nil {
		return "", err
	}
	text, ok := scalar(gjson.ParseBytes(raw))
	if !ok {
		return "", fmt.Errorf("%w: %s must be a string", ErrParams, place)
	}
	return text, nil
}

// scalar gives the text of a value that is no array or object, numbers digit for digit.
func scalar(v gjson.Result) (string, bool) {
	switch v.Type {
	case gjson.JSON:
		return "", false
	case gjson.Number:
		return v.Raw, true
	default:
		return v.String(), true
	}
}

func (p *preparer) address(base string) (string, error) {
	var whole string
	if p.call.Compiled.URL != nil {
		text, err := p.text("url", p.call.Compiled.URL)
		if err != nil {
			return "", err
		}
		whole = text
	} else {
		path, err := p.path()
		if err != nil {
			return "", err
		}
		whole = base + path
	}
	u, err := url.Parse(whole)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "", fmt.Errorf("%w: url must be a whole http or https address", ErrParams)
	case u.User != nil:
		return "", fmt.Errorf("%w: url must not hold a user name or password; use a credential", ErrParams)
	case !p.call.MayReach(u):
		return "", fmt.Errorf("%w: url is at none of the origins that the catalog allows", ErrParams)
	}
	u.Fragment, u.RawFragment = "", ""
	query, err := p.fields("query", p.call.Compiled.Query)
	if err != nil {
		return "", err
	}
	if u.RawQuery != "" && query != "" {
		query = "&" + query
	}
	u.RawQuery += query
	return u.String(), nil
}

// path puts the path together. A value becomes one segment (or query value) and cannot break out of it.
func (p *preparer) path() (string, error) {
	var b strings.Builder
	for i, part := range p.call.Compiled.Path {
		if part.Value == nil {
			b.WriteString(part.Literal)
			continue
		}
		place := fmt.Sprintf("path, value %d", i)
		text, err := p.text(place, part.Value)
		if err != nil {
			return "", err
		}
		switch {
		case part.Query:
			b.WriteString(url.QueryEscape(text))
		case text == "" || text == "." || text == "..":
			return "", fmt.Errorf("%w: a part of the address must not be empty, \".\" or \"..\"", ErrParams)
		default:
			b.WriteString(url.PathEscape(text))
		}
	}
	return b.String(), nil
}

func (p *preparer) headers(r *Request) error {
	raw, err := p.render("headers", p.call.Compiled.Headers)
	if err != nil {
		return err
	}
	fields := gjson.ParseBytes(raw)
	if raw != nil && !fields.IsObject() && fields.Type != gjson.Null {
		return fmt.Errorf("%w: headers must be an object", ErrParams)
	}
	fields.ForEach(func(name, value gjson.Result) bool {
		if value.Type == gjson.Null {
			return true
		}
		text, ok := scalar(value)
		if !ok {
			err = fmt.Errorf("%w: header %q must be a string", ErrParams, name.String())
			return false
		}
		err = setHeader(r.Header, name.String(), text)
		return err == nil
	})
	if err != nil || p.key == "" {
		return err
	}
	name, err := p.text("idempotency_header", p.call.Compiled.IdempotencyHeader)
	if err != nil || name == "" {
		return err
	}
	return setHeader(r.Header, name, p.key)
}

func setHeader(h http.Header, name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("%w: %q is no name of a header", ErrParams, name)
	case reserved(name):
		return fmt.Errorf("%w: header %s is set by the sender and cannot be chosen", ErrParams, name)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("%w: the value of header %s holds a line break or another character that no header can carry",
			ErrParams, name)
	}
	h.Set(name, value)
	return nil
}

// Per says what a call counts for in a bucket that has a budget each for what its parameters name; empty where the
// bucket has none. Errors wrap ErrParams.
func Per(act *catalog.Action, bucket string, params json.RawMessage) (string, error) {
	p := preparer{call: act.Call, env: &expr.Env{Params: params}}
	return p.text("per", act.Call.Compiled.Per[bucket])
}

// ExclusiveOver names what the call must have for itself within its account; empty for nothing. Errors wrap ErrParams.
func ExclusiveOver(act *catalog.Action, params json.RawMessage) (string, error) {
	if act.Call == nil {
		return "", nil
	}
	p := preparer{call: act.Call, env: &expr.Env{Params: params}}
	return p.text("exclusive_over", act.Call.Compiled.ExclusiveOver)
}
