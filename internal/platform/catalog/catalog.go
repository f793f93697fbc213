// Package catalog holds platforms, services and actions as data: what a client may call, and how Flowlane carries it
// out. It promises that everything it hands out was checked when it was loaded. It knows no HTTP client, no database
// and no particular platform: all of that is in the YAML files.
package catalog

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"flowlane/internal/expr"
)

// Platform is one third party, for example "dialer".
type Platform struct {
	ID          string `yaml:"id"`
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	// Status is active, inactive or coming_soon.
	Status  string `yaml:"status"`
	DocsURL string `yaml:"docs_url"`
	// Account says how to learn about an account of the platform; nil for platforms without accounts.
	Account *Account `yaml:"account"`
	// Labels fill places {name} in the base URLs of the services.
	Labels   map[string]*Label `yaml:"labels"`
	Services []*Service        `yaml:"services"`
	// Private: one organization has it for itself.
	Private bool `yaml:"-"`
}

// CredentialField is one field of the secret that a credential of the service needs.
type CredentialField struct {
	Name     string `yaml:"name"`
	Label    string `yaml:"label"`
	Type     string `yaml:"type"` // string or password
	Required bool   `yaml:"required"`
	Secret   bool   `yaml:"secret"`
}

// Service is one API of a platform, "<platform>__<service>".
type Service struct {
	ID          string `yaml:"id"`
	PlatformID  string `yaml:"-"`
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	Kind        string `yaml:"kind"`
	Protocol    string `yaml:"protocol"`
	AuthMethod  string `yaml:"auth_method"`
	// BaseURL is where the calls go: the pattern of the addresses that Address makes of it.
	BaseURL string `yaml:"base_url"`
	// Labels are those of the platform.
	Labels map[string]*Label `yaml:"-"`
	// SignIn is how AuthMethod signs in; OtherAuth are other ways.
	SignIn    SignIn `yaml:"sign_in"`
	OtherAuth []Auth `yaml:"other_auth"`
	// Headers go with every call, unless the call sets them itself.
	Headers          map[string]string `yaml:"headers"`
	DocsURL          string            `yaml:"docs_url"`
	CredentialFields []CredentialField `yaml:"credential_fields"`
	// SOAP says how the envelopes of a service of protocol SOAP are made.
	SOAP               *SOAP  `yaml:"soap"`
	RequiresConnection bool   `yaml:"requires_connection"`
	Status             string `yaml:"status"`
	// Check is the path of a GET that answers 200 to every working credential, for platforms that cannot tell accounts.
	Check string `yaml:"check"`
	// CheckAction is the action that is called for that instead, for platforms that no GET of a path tells.
	CheckAction string                 `yaml:"check_action"`
	RateBuckets map[string]*RateBucket `yaml:"rate_buckets"`
	Actions     []*Action              `yaml:"actions"`

	checkedBy *Action // of CheckAction
}

// OutcomeCheck says what may be done when nobody knows whether a call arrived.
type OutcomeCheck string

// The four outcome checks.
const (
	// CheckSafe: sending again changes nothing.
	CheckSafe OutcomeCheck = "safe"
	// CheckKeyed: the provider drops a repeat that carries the same idempotency key.
	CheckKeyed OutcomeCheck = "keyed"
	// CheckLookup: the provider can be asked.
	CheckLookup OutcomeCheck = "lookup"
	// CheckNone: only a person can tell.
	CheckNone OutcomeCheck = "none"
)

// Action is one operation of a service, "<platform>__<service>__<action>".
type Action struct {
	ID           string   `yaml:"id"`
	ServiceID    string   `yaml:"-"`
	PlatformID   string   `yaml:"-"`
	Name         string   `yaml:"name"`
	Description  string   `yaml:"description"`
	ParamsSchema JSON     `yaml:"params_schema"`
	OutputSchema JSON     `yaml:"output_schema"`
	Buckets      []string `yaml:"buckets"`
	// Costs are the prices of the action's calls by bucket, where they are not the bucket's.
	Costs       map[string]Price `yaml:"costs"`
	DefaultLane string           `yaml:"default_lane"`
	// MaxRecordsPerRequest and MaxBytesPerRequest bound one call: its records, and its body as it is sent.
	MaxRecordsPerRequest int `yaml:"max_records_per_request"`
	MaxBytesPerRequest   int `yaml:"max_bytes_per_request"`
	// Bulk: one call takes records of several jobs, which end as accepted and not as completed.
	Bulk         bool         `yaml:"bulk"`
	OutcomeCheck OutcomeCheck `yaml:"outcome_check"`
	Deprecated   bool         `yaml:"deprecated"`

	// Utility names the in-process function of a utility action, one of utilities in check.go; empty for actions that
	// make calls.
	Utility string `yaml:"utility"`
	// Call says how the action is carried out; nil for utility actions.
	Call *Call `yaml:"call"`

	service  *Service // whose action it is
	platform *Platform
	params   *jsonschema.Schema // compiled from ParamsSchema when loaded
	free     []string           // the parameters that may be anything
}

// Call is the execution part of an action: everything that the dispatcher knows about the provider.
// Strings in Method, Path, URL, Query, Headers and Body are templates over `params`.
type Call struct {
	Method string `yaml:"method"`
	// Tool is the name of the tool that an action of kind mcp calls, with its parameters as arguments. Method, address,
	// body and the meaning of answers follow from the protocol.
	Tool string `yaml:"tool"`
	// Command is the name of the command that an action of kind cli runs, as the operator allows it. Args are
	// templates, each of one argument; a null is left out. Stdin is a template of what it reads: a text as it is,
	// anything else as JSON.
	Command string   `yaml:"command"`
	Args    []string `yaml:"args"`
	Stdin   JSON     `yaml:"stdin"`
	// Stdout is how what it writes is read: json or text (the default).
	Stdout string `yaml:"stdout"`
	// Exits say what its exit statuses prove.
	Exits Exits `yaml:"exits"`
	// Path is joined to the service's base URL, each expression escaped as one path segment (or query value).
	Path string `yaml:"path"`
	// URL replaces base URL and Path where the caller names the whole address. Origins are those that it may have,
	// where they are bounded: https://*.example.com is that of any host below example.com.
	URL     string   `yaml:"url"`
	Origins []string `yaml:"origins"`
	Headers JSON     `yaml:"headers"`
	// Query is a JSON template of an object: the parameters of the query, behind those of Path, written like a form.
	Query JSON `yaml:"query"`
	// Body is a JSON template; nil sends an empty body. In a bulk action it is the envelope around the records.
	Body JSON `yaml:"body"`
	// BodyForm is how the body is written, one of BodyForms or a template that gives one: json (the default); form and
	// multipart, an object of fields; xml, an object with one field, the root element; text; bytes, in base64. The
	// records of a bulk action can be lines: csv, jsonl.
	BodyForm string `yaml:"body_form"`
	// SOAP is for services of that protocol: Body is an object of the elements in the envelope's body.
	SOAP *SOAPCall `yaml:"soap"`
	// GraphQL is for services of that protocol, and stands instead of Body.
	GraphQL *GraphQL `yaml:"graphql"`
	// Records says where the records of a bulk action go.
	Records *Records `yaml:"records"`
	// TimeoutSeconds bounds one call, unless the task says otherwise.
	TimeoutSeconds int `yaml:"timeout_seconds"`
	// ExclusiveOver is a template: at most one open call per account with the same value.
	ExclusiveOver string `yaml:"exclusive_over"`
	// IdempotencyHeader is a template that yields the name of the header for a key of ours, or empty.
	IdempotencyHeader string `yaml:"idempotency_header"`
	// Idempotency says where else the key goes, and what it is worth.
	Idempotency Idempotency `yaml:"idempotency"`
	// AWSService and AWSRegion are templates: what the call is signed for, or empty for what the credential and the
	// address say.
	AWSService string `yaml:"aws_service"`
	AWSRegion  string `yaml:"aws_region"`
	// OutcomeCases refine OutcomeCheck by the parameters: the first whose When is true counts.
	OutcomeCases []OutcomeCase `yaml:"outcome_cases"`
	Answer       Answer        `yaml:"answer"`
	Lookup       *Lookup       `yaml:"lookup"`
	Result       *Result       `yaml:"result"`
	// Job is for calls that take several requests.
	Job *Job `yaml:"job"`
	// MaxInFlight limits the calls in flight of an unmetered action per credential or host.
	MaxInFlight int `yaml:"max_in_flight"`

	// Compiled are the templates above, ready to be rendered.
	Compiled Templates `yaml:"-" json:"-"`
}

// Outcome says what may be done when nobody knows whether a call with these parameters arrived: the check of the
// first case whose condition holds, else the action's own. A condition that has no value does not hold.
func (a *Action) Outcome(params []byte) OutcomeCheck {
	if a.Call == nil {
		return a.OutcomeCheck
	}
	for i, when := range a.Call.Compiled.Cases {
		if holds, err := when.Eval(&expr.Env{Params: params}); err == nil && holds {
			return a.Call.OutcomeCases[i].Check
		}
	}
	return a.OutcomeCheck
}

// Exits say what the exit statuses of a command prove: that it did its work, that it did nothing and will not
// (Refused), or that it did nothing and may be tried again (Retry). Others prove nothing.
type Exits struct {
	Success []int `yaml:"success"`
	Refused []int `yaml:"refused"`
	Retry   []int `yaml:"retry"`
}

// OutcomeCase is a refinement of an action's outcome check.
type OutcomeCase struct {
	When  string       `yaml:"when"`
	Check OutcomeCheck `yaml:"check"`
}

// Records says how the records of a bulk call become its body.
type Records struct {
	// At leads to the field of the body that holds the array, with dots between levels; empty where the array is the
	// body. Objects on the way that the body lacks are made.
	At string `yaml:"at"`
	// Param names the parameter that is evaluated for every record and yields one row.
	Param string `yaml:"param"`
	// Columns are the fields of a row in a body of CSV, in the order of its columns, which have their names: all that
	// the rows of a call have where it is empty. Null is what a null is written as there; a field that a row lacks is
	// empty.
	Columns []string `yaml:"columns"`
	Null    string   `yaml:"null"`
	// KeyParam names the parameter that names the row's key field; empty where rows have no key.
	KeyParam string `yaml:"key_param"`
	// Key names that field where it is the same in every flow.
	Key string `yaml:"key"`
	// Distinct: a call has no two rows of one key.
	Distinct bool `yaml:"distinct"`
	// KeyDefault is the default of KeyParam in the params_schema; filled in when the catalog is loaded.
	KeyDefault string `yaml:"-"`
}

// Answer says how the provider's answer is read.
type Answer struct {
	// Form says that an answer which is no JSON is a table of CSV, whose first line names its columns, or has JSON on
	// each line (jsonl): its value is the array of these.
	Form string `yaml:"form"`
	// Outcomes is a template whose value says for a call what statuses prove, before the lists below do: an object of
	// lists of statuses by the names success, refused, retry (nothing was done; again, as the retry policy says) and
	// unclear.
	Outcomes string `yaml:"outcomes"`
	// Cases are asked in order before the lists below: what the first proves whose condition holds counts.
	Cases []AnswerCase `yaml:"cases"`
	// Success lists statuses that prove acceptance; a pending one lists those whose result comes later.
	Success []int `yaml:"success"`
	Pending []int `yaml:"pending"`
	// Refused lists statuses that prove that nothing was done and that sending the same again is useless.
	Refused []int `yaml:"refused"`
	// RetryLater lists answers that prove that nothing was done, but the same call may pass later.
	RetryLater []RetryLater `yaml:"retry_later"`
	// Reference names the field by which the provider knows the call.
	Reference string `yaml:"reference"`
	// Output names the fields of the answer that become the output; empty takes the whole body.
	Output []string `yaml:"output"`
	// Envelope puts status, headers and body into the output instead of the body alone.
	Envelope bool `yaml:"envelope"`
	// Rows says what became of the single records of a bulk call.
	Rows *RowResults `yaml:"rows"`
	// Code and Message name the fields of an error answer.
	Code    string `yaml:"code"`
	Message string `yaml:"message"`
}

// Awaits reports whether an answer may say that the result comes later.
func (a *Answer) Awaits() bool {
	return len(a.Pending) > 0 ||
		slices.ContainsFunc(a.Cases, func(c AnswerCase) bool { return c.Is == AnswerPending })
}

// The values of AnswerCase.Is.
const (
	AnswerSuccess    = "success"
	AnswerPending    = "pending"
	AnswerRefused    = "refused"
	AnswerRetryLater = "retry_later"
	AnswerUnknown    = "unknown"
)

// AnswerCase tells answers apart that have one status: an error inside a 200, a 403 that is a rate limit.
type AnswerCase struct {
	// When is a condition over `answer`: its status, headers (by names in lower case), body (parsed by its type, else
	// text) and, of SOAP, fault (code, string, name and detail). One that has no value does not hold.
	When string `yaml:"when"`
	// Is says what such an answer proves: success, pending, refused (nothing was done, and the same again is useless),
	// retry_later (nothing was done, and the same may pass later) or unknown.
	Is string `yaml:"is"`
	// RateLimit says of retry_later that the budget is spent: no other call of it goes out meanwhile.
	RateLimit bool `yaml:"rate_limit"`
	// Bucket, WindowSeconds, Reset and WaitSeconds are as of RetryLater.
	Bucket        string `yaml:"bucket"`
	WindowSeconds string `yaml:"window_seconds"`
	Reset         string `yaml:"reset"`
	WaitSeconds   int    `yaml:"wait_seconds"`
	// Code and Message name the fields of such an answer, where they are not those of others.
	Code    string `yaml:"code"`
	Message string `yaml:"message"`
}

// Idempotency is about the key by which a provider knows a call that is sent again.
type Idempotency struct {
	// Body names the field of the body that gets the key; a dot leads into an object.
	Body string `yaml:"body"`
	// LifeSeconds is how long after a call the provider knows its key; 0 for longer than any call is repeated.
	LifeSeconds int `yaml:"life_seconds"`
	// ReplaysErrors says that a call which failed with a server error gets that answer again, whatever it had done:
	// then no repeat tells.
	ReplaysErrors bool `yaml:"replays_errors"`
}

// RetryLater is one answer that asks to come back.
type RetryLater struct {
	Status int `yaml:"status"`
	// Bucket and WindowSeconds name the fields that say which budget is spent; the hold then ends with that window.
	Bucket        string `yaml:"bucket"`
	WindowSeconds string `yaml:"window_seconds"`
	// Reset names a header that says when the window is over that is spent, where it is none of the usual ones.
	Reset string `yaml:"reset"`
	// WaitSeconds is how long to wait where the answer has neither window nor Retry-After nor reset. A 429 of an action
	// without buckets backs off by itself instead.
	WaitSeconds int `yaml:"wait_seconds"`
}

// Lookup asks the provider whether a call with unknown outcome arrived.
type Lookup struct {
	// Action is the action that asks; it spends its own bucket.
	Action string `yaml:"action"`
	// Params are templates over `params` (of the call) and `call`: since, and cursor, which leads to the next page and
	// is null for the first.
	Params JSON `yaml:"params"`
	// Page says how an answer goes on that comes in pages. Whole says that one answer always has everything since the
	// time that was asked for. One of the two must be said, because a call that is on a later page is not absent.
	Page  *Page `yaml:"page"`
	Whole bool  `yaml:"whole"`
	// Items names the array in the answer; empty means the body is the array.
	Items string `yaml:"items"`
	// Digest, Count, FirstKey, LastKey and At name fields of an element; those that are named must all match.
	Digest   string `yaml:"digest"`
	Count    string `yaml:"count"`
	FirstKey string `yaml:"first_key"`
	LastKey  string `yaml:"last_key"`
	At       string `yaml:"at"`
	// Match finds a call of one record instead: by fields of an element, each with a template over `params` of the
	// value that it must have. Output names the fields of the element that are the output of such a call, all where it
	// is empty.
	Match  JSON     `yaml:"match"`
	Output []string `yaml:"output"`
	// DigestForm says how the provider sums up the bytes of the array of rows: sha256 ("sha256:<hex>", the default) or
	// crc32c ("crc32c:<hex>").
	DigestForm string `yaml:"digest_form"`
	// Reference names the element's reference, which settles one call only.
	Reference string `yaml:"reference"`
	// SettlesWithinSeconds: "not found" is final only this long after the call could last have arrived.
	SettlesWithinSeconds int `yaml:"settles_within_seconds"`
	// HorizonSeconds is how long the provider remembers.
	HorizonSeconds int `yaml:"horizon_seconds"`
}

// Page says where an answer tells of its next page: in one of three places. Where that is empty, the page is the last.
type Page struct {
	// Cursor names the field with a cursor, which the params of the next request render as `call.cursor`.
	Cursor string `yaml:"cursor"`
	// Link names the field with the address of the next page, LinkHeader says that it stands in the header Link as
	// rel="next". It is asked instead of the action's own address, and must be of the same host.
	Link       string `yaml:"link"`
	LinkHeader bool   `yaml:"link_header"`
	// MaxPages bounds the pages of one lookup, 20 where it is not set. Where there are more, a call that is on none of
	// them has not been looked for everywhere, and is left to a person.
	MaxPages int `yaml:"max_pages"`
}

// Result asks for the row results of a call that the provider knows by reference.
type Result struct {
	Action string `yaml:"action"`
	// Params are templates over `reference`.
	Params JSON `yaml:"params"`
	// State names the field whose value is in Running while the result is not there yet.
	State   string   `yaml:"state"`
	Running []string `yaml:"running"`
	// Failed are the values of State after which none of the records was taken; may be empty.
	Failed []string `yaml:"failed"`
	// DoneWhen says instead of State when the result is there, FailedWhen that none of the records was taken:
	// conditions over `answer`. While neither holds, the result is not there yet.
	DoneWhen   string `yaml:"done_when"`
	FailedWhen string `yaml:"failed_when"`
	// EverySeconds is the pause between two polls.
	EverySeconds int         `yaml:"every_seconds"`
	Rows         *RowResults `yaml:"rows"`
	// RowsFrom says how to ask for the rows of a result that is there, where the answer that says so does not have
	// them.
	RowsFrom *RowsFrom `yaml:"rows_from"`
	Output   []string  `yaml:"output"`
	// Message names the field with the text of a result that none of the records was taken, where it is not that of the
	// answer.
	Message string `yaml:"message"`
}

// RowsFrom asks for the rows of a result.
type RowsFrom struct {
	// Action is the action that asks; it spends its own bucket.
	Action string `yaml:"action"`
	// When is a condition over `answer`, the one that says that the result is there: whether there are rows to ask for.
	When string `yaml:"when"`
	// Params are templates over `reference`, `answer` and `call`: cursor, which leads to the next page and is null for
	// the first, and each.
	Params JSON `yaml:"params"`
	// Each are the values of `call.each`: the action is asked once for every one, and each answer has others of the
	// rows.
	Each []string `yaml:"each"`
	// Page says how an answer goes on that comes in pages; nil where one answer has everything.
	Page *Page `yaml:"page"`
}
