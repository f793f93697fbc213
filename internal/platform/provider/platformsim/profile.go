package platformsim

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/expr"
	"flowlane/internal/platform/catalog"
)

//go:embed data/*.yaml
var embedded embed.FS

// profile is what is known of a platform beside its entry in the catalog. Its templates see `input`, the request
// (method, path, query, headers, body, credential), and `vars`, what the simulator makes of it.
type profile struct {
	Platform string `yaml:"platform"`
	// Document is the file name of the vendor's OpenAPI document, DocumentBase the path in front of its paths.
	Document     string `yaml:"document"`
	DocumentBase string `yaml:"document_base"`
	// Answers are those that all requests share, by the names of answerNames.
	Answers  map[string]*answer `yaml:"answers"`
	Requests []*request         `yaml:"requests"`
	// Lists are elements of requests of XML that are arrays even where there is one, by the names on the way to each.
	Lists []string `yaml:"lists"`
	// Limits are those of the vendor; the buckets of the catalog hold beside them.
	Limits []*limit `yaml:"limits"`
}

// The answers that every platform has.
const (
	answerSuccess      = "success"
	answerUnauthorized = "unauthorized"
	answerInvalid      = "invalid"
	answerMissing      = "missing"
	answerLimited      = "limited"
	answerRejected     = "rejected" // a single record that a rule rejects
	answerConflict     = "conflict" // an idempotency key that came with another request before
)

var answerNames = []string{
	answerSuccess, answerUnauthorized, answerInvalid, answerMissing, answerLimited, answerRejected, answerConflict,
}

// answer is a template of what is answered.
type answer struct {
	Status  int          `yaml:"status"`
	Headers catalog.JSON `yaml:"headers"`
	Body    catalog.JSON `yaml:"body"`
	// Media is the type of the body; application/json where it is empty. The body of another type is a text, that of
	// CSV an array of lines, which are arrays of cells.
	Media string `yaml:"media"`

	headers, body *expr.Template
}

// request is one that the platform knows.
type request struct {
	Method string `yaml:"method"`
	// Path is a pattern: {name} stands for one segment or a part of one.
	Path string `yaml:"path"`
	// When tells requests of one path apart.
	When string `yaml:"when"`
	// Action is that of the catalog which makes it; empty for none, such as a question about the account.
	Action string `yaml:"action"`
	// Public requests need no credential.
	Public bool `yaml:"public"`
	// Records is a template of the array of records in a request that carries several.
	Records catalog.JSON `yaml:"records"`
	// Key is a template, over the record as `item` too, of what an arrival is counted under.
	Key catalog.JSON `yaml:"key"`
	// AllOrNothing: one bad record has the whole request refused.
	AllOrNothing bool `yaml:"all_or_nothing"`
	// Idempotency names the header with a key by which a repeat is answered as the first request was.
	Idempotency string `yaml:"idempotency"`
	// Job is a template of the id of an earlier call, which vars.job then describes.
	Job catalog.JSON `yaml:"job"`
	// State is a template of the state that the job has afterwards, or the one that the request makes; Needs are the
	// states that it may have. Fills has the records of the request become those of the job, Begins has the job done.
	State  catalog.JSON `yaml:"state"`
	Needs  []string     `yaml:"needs"`
	Fills  bool         `yaml:"fills"`
	Begins bool         `yaml:"begins"`
	// Of is the action whose accepted requests vars.items lists, newest first.
	Of string `yaml:"of"`
	// Answers go before those of the profile.
	Answers map[string]*answer `yaml:"answers"`

	when                     *expr.Condition
	records, key, job, state *expr.Template
}

// limit is one of the vendor's.
type limit struct {
	Name string `yaml:"name"`
	// Actions are those that it counts; none for all.
	Actions []string `yaml:"actions"`
	// Per is a template of what it is counted by, within the credential.
	Per catalog.JSON `yaml:"per"`
	// Seconds and Calls make a window that rolls; Concurrent bounds the calls that are under way, OpenJobs the calls of
	// Actions whose job is not done: it is when it was asked about twice.
	Seconds    int `yaml:"seconds"`
	Calls      int `yaml:"calls"`
	Concurrent int `yaml:"concurrent"`
	OpenJobs   int `yaml:"open_jobs"`

	per *expr.Template
}

var (
	requestScope = expr.Scope{Input: true, Vars: true}
	recordScope  = expr.Scope{Input: true, Vars: true, Item: true}
)

// profileOf reads the profile of a platform; an empty one where it has none.
func profileOf(platformID string) (*profile, error) {
	text, err := embedded.ReadFile("data/" + platformID + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return &profile{Platform: platformID}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	p, err := readProfile(text)
	if err != nil {
		return nil, fmt.Errorf("profile of platform %s: %w", platformID, err)
	}
	return p, nil
}

func readProfile(text []byte) (*profile, error) {
	var p profile
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	c := compiler{}
	c.answers("answers", p.Answers)
	for i, r := range p.Requests {
		at := fmt.Sprintf("requests[%d]", i)
		r.when = c.condition(at+".when", r.When)
		r.records = c.template(at+".records", r.Records, requestScope)
		r.key = c.template(at+".key", r.Key, recordScope)
		r.job = c.template(at+".job", r.Job, requestScope)
		r.state = c.template(at+".state", r.State, requestScope)
		c.answers(at, r.Answers)
	}
	for i, l := range p.Limits {
		l.per = c.template(fmt.Sprintf("limits[%d].per", i), l.Per, requestScope)
	}
	return &p, errors.Join(c.errs...)
}

// compiler compiles the templates of a profile and keeps what is wrong with them.
type compiler struct{ errs []error }

func (c *compiler) answers(at string, answers map[string]*answer) {
	for name, a := range answers {
		if !slices.Contains(answerNames, name) {
			c.errs = append(c.errs, fmt.Errorf("%s: there is no answer %q; there are %v", at, name, answerNames))
		}
		a.headers = c.template(at+"."+name+".headers", a.Headers, requestScope)
		a.body = c.template(at+"."+name+".body", a.Body, requestScope)
	}
}

func (c *compiler) template(at string, value catalog.JSON, scope expr.Scope) *expr.Template {
	if len(value) == 0 {
		return nil
	}
	t, errs := expr.Compile(json.RawMessage(value), scope)
	for _, e := range errs {
		c.errs = append(c.errs, fmt.Errorf("%s: %s", at, e.Error()))
	}
	return t
}

func (c *compiler) condition(at, text string) *expr.Condition {
	if text == "" {
		return nil
	}
	t, errs := expr.CompileCondition(text, requestScope)
	for _, e := range errs {
		c.errs = append(c.errs, fmt.Errorf("%s: %s", at, e.Error()))
	}
	return t
}
