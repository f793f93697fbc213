package catalog

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// The ways to sum up rows.
const (
	digestSHA256 = "sha256"
	DigestCRC32C = "crc32c"
)

// The ways to write a body.
const (
	BodyJSON      = "json"
	BodyForm      = "form"
	BodyMultipart = "multipart"
	BodyXML       = "xml"
	BodyText      = "text"
	BodyBytes     = "bytes"
	// BodyCSV and BodyJSONL are a line for each record of a bulk call.
	BodyCSV   = "csv"
	BodyJSONL = "jsonl"
	// BodySOAP is that of all calls of a service of this protocol.
	BodySOAP = "soap"
)

// BodyForms are those of single records, recordForms those of bulk calls.
var BodyForms = []string{BodyJSON, BodyForm, BodyMultipart, BodyXML, BodyText, BodyBytes}

var recordForms = []string{BodyJSON, BodyXML, BodyCSV, BodyJSONL}

// Bounds of what a call may ask for.
const (
	defaultTimeoutSeconds = 30
	maxTimeoutSeconds     = 600
	defaultMaxInFlight    = 32
	defaultMaxPages       = 20
	mostPages             = 100
)

func (ch *checker) call(c *Catalog, s *Service, a *Action, at path, params map[string]bool) {
	call := a.Call
	switch {
	case call.Tool != "", call.Command != "":
	case call.Method == "":
		ch.need(at, "method", call.Method)
	case call.Path == "" && call.URL == "" && s.Protocol != "REST" && s.BaseURL != "": // which is the whole address
	case (call.Path == "") == (call.URL == ""):
		ch.fail(at, "a call needs either a path or a url")
	case call.Path != "" && !strings.HasPrefix(call.Path, "/"):
		ch.fail(at.to("path"), "path must start with /")
	case call.Path != "" && s.BaseURL == "":
		ch.fail(at.to("path"), "a path needs the base_url of the service")
	}
	if call.TimeoutSeconds == 0 {
		call.TimeoutSeconds = defaultTimeoutSeconds
	}
	ch.within(at, "timeout_seconds", call.TimeoutSeconds, 1, maxTimeoutSeconds)
	if call.MaxInFlight == 0 {
		call.MaxInFlight = defaultMaxInFlight
	}
	ch.within(at, "max_in_flight", call.MaxInFlight, 1, 1000)
	ch.fields(a, at)
	ch.origins(call, at)
	ch.compile(call, at, params)
	ch.per(s, a, at[:len(at)-3], params)
	ch.records(a, at, params)
	ch.outcomes(a, at)
	ch.answer(call, at.to("answer"))
	if call.Lookup != nil {
		ch.lookup(c, a, at.to("lookup"))
	}
	if call.Result != nil {
		ch.result(c, a, at.to("result"))
	}
	if call.Job != nil {
		ch.job(c, a, at.to("job"))
	}
	if len(call.Answer.Pending) > 0 && call.Result == nil {
		ch.fail(at.to("answer", "pending"),
			"an answer whose result comes later needs a result block that says how to ask for it")
	}
	if len(call.Answer.Pending) > 0 && call.Answer.Reference == "" {
		ch.fail(at.to("answer"), "an answer whose result comes later needs the reference by which to ask for it")
	}
}

// fields checks what is written as names and values.
func (ch *checker) fields(a *Action, at path) {
	call := a.Call
	if len(call.Query) > 0 && call.Query[0] != '{' {
		ch.fail(at.to("query"), "query must be an object: the value of each parameter by its name")
	}
	if call.BodyForm == "" {
		call.BodyForm = BodyJSON
	}
	switch {
	case call.BodyForm == BodySOAP:
	case a.Bulk:
		oneOf(ch, at, "body_form", call.BodyForm, recordForms)
	case !strings.Contains(call.BodyForm, "{{"):
		oneOf(ch, at, "body_form", call.BodyForm, BodyForms)
	}
	if call.Answer.Form != "" {
		oneOf(ch, at.to("answer"), "form", call.Answer.Form, []string{BodyCSV, BodyJSONL})
	}
}

func (ch *checker) records(a *Action, at path, params map[string]bool) {
	r := a.Call.Records
	if (r != nil) != a.Bulk {
		ch.fail(at, "a bulk action, and only a bulk action, needs a records block")
	}
	if r == nil {
		return
	}
	here := at.to("records")
	xml := a.Call.BodyForm == BodyXML || a.Call.BodyForm == BodySOAP
	if r.At != "" && !recordsPath.MatchString(r.At) || r.At == "" && xml {
		ch.fail(here.to("at"),
			"at is %q; it must name the field of the body that holds the records, with dots between levels", r.At)
	}
	for _, name := range []string{r.Param, r.KeyParam} {
		if name != "" && !params[name] {
			ch.fail(here, "the action has no parameter %q", name)
		}
	}
	ch.need(here, "param", r.Param)
	r.KeyDefault = a.defaultOf(r.KeyParam)
	ch.field(here, "key", r.Key, false)
	if r.Key != "" && r.KeyParam != "" {
		ch.fail(here.to("key"), "the field of the key is named by key or by key_param, not by both")
	}
	if r.Distinct && r.Key == "" && r.KeyParam == "" {
		ch.fail(here.to("distinct"), "distinct needs the field of the key: key or key_param")
	}
	ch.recordsPlace(a.Call, at.to("body"))
	ch.lines(a.Call, here)
}

// lines checks records that are lines of text.
func (ch *checker) lines(call *Call, at path) {
	r := call.Records
	table := call.BodyForm == BodyCSV
	switch {
	case (table || call.BodyForm == BodyJSONL) && r.At != "":
		ch.fail(at.to("at"), "the records are the whole body where they are lines; leave at out")
	case !table && len(r.Columns) > 0:
		ch.fail(at.to("columns"), "columns are those of a body of CSV")
	case r.Null != "" && !table:
		ch.fail(at.to("null"), "null is how CSV writes a null")
	}
	for i, name := range r.Columns {
		if name == "" || slices.Contains(r.Columns[:i], name) {
			ch.fail(at.to("columns", i), "column %q is empty or stands twice", name)
		}
	}
}

var recordsPath = regexp.MustCompile(`^[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*$`)

// recordsPlace checks that the body leaves room for the records.
func (ch *checker) recordsPlace(call *Call, at path) {
	if call.Records.At == "" {
		if len(call.Body) > 0 {
			ch.fail(at, "the records are the whole body where records.at is empty; leave the body out")
		}
		return
	}
	left := json.RawMessage(call.Body)
	for names := strings.Split(call.Records.At, "."); len(left) > 0; names = names[1:] {
		body := map[string]json.RawMessage{}
		if json.Unmarshal(left, &body) != nil {
			ch.fail(at, "the body of a bulk action must be an object: the envelope around the records")
			return
		}
		if len(names) == 1 {
			if _, there := body[names[0]]; there {
				ch.fail(at.to(names[0]), "body must leave out %q, where the records go", names[0])
			}
			return
		}
		left = body[names[0]]
		at = at.to(names[0])
	}
}

func (ch *checker) outcomes(a *Action, at path) {
	call := a.Call
	possible := []OutcomeCheck{a.OutcomeCheck}
	for i, oc := range call.OutcomeCases {
		here := at.to("outcome_cases", i)
		ch.need(here, "when", oc.When)
		oneOf(ch, here, "check", oc.Check, outcomeChecks)
		possible = append(possible, oc.Check)
	}
	if slices.Contains(possible, CheckLookup) && call.Lookup == nil && call.Job == nil {
		ch.fail(at, "outcome_check lookup needs a lookup block, or a job that is asked about by its reference")
	}
	switch keyed := slices.Contains(possible, CheckKeyed); {
	case keyed && a.Bulk:
		ch.fail(at, "outcome_check keyed is for actions of one record: a call with many has no idempotency key; "+
			"say safe where a repeat does no harm, else lookup or none")
	case keyed && call.IdempotencyHeader == "" && call.Idempotency.Body == "":
		ch.fail(at, "outcome_check keyed needs an idempotency_header, or idempotency with the field of the body")
	}
	here := at.to("idempotency")
	ch.field(here, "body", call.Idempotency.Body, false)
	ch.within(here, "life_seconds", call.Idempotency.LifeSeconds, 0, 31*day)
	if call.Idempotency.Body != "" && (a.Bulk || call.BodyForm == BodyText || call.BodyForm == BodyBytes) {
		ch.fail(here.to("body"), "only a body with fields, of one record, has a place for the key")
	}
}

func (ch *checker) answer(call *Call, at path) {
	ans := &call.Answer
	if len(ans.Success)+len(ans.Pending) == 0 {
		ch.fail(at, "the answer needs at least one status that proves acceptance (success or pending)")
	}
	ch.answerCases(ans.Cases, at)
	seen := map[int]string{}
	status := func(list string, code int, here path) {
		switch other, twice := seen[code]; {
		case code < 200 || code > 599:
			ch.fail(here, "%d is no status of an answer", code)
		case twice:
			ch.fail(here, "status %d stands in %s and in %s", code, other, list)
		}
		seen[code] = list
	}
	proof := func(code int, here path) {
		if code < 200 || code > 299 {
			ch.fail(here, "only a 2xx status proves acceptance")
		}
	}
	for i, code := range ans.Success {
		proof(code, at.to("success", i))
		status("success", code, at.to("success", i))
	}
	for i, code := range ans.Pending {
		proof(code, at.to("pending", i))
		status("pending", code, at.to("pending", i))
	}
	for i, code := range ans.Refused {
		status("refused", code, at.to("refused", i))
	}
	for i, r := range ans.RetryLater {
		here := at.to("retry_later", i)
		status("retry_later", r.Status, here)
		ch.field(here, "bucket", r.Bucket, false)
		ch.field(here, "window_seconds", r.WindowSeconds, false)
		ch.within(here, "wait_seconds", r.WaitSeconds, 1, 86400)
		ch.header(here, "reset", r.Reset)
	}
	for _, f := range [][2]string{{"reference", ans.Reference}, {"code", ans.Code}, {"message", ans.Message}} {
		ch.field(at, f[0], f[1], false)
	}
	ch.output(ans.Output, at)
	ch.rows(ans.Rows, call.Records, at.to("rows"), false)
}

func (ch *checker) answerCases(cases []AnswerCase, at path) {
	for i, c := range cases {
		here := at.to("cases", i)
		ch.need(here, "when", c.When)
		oneOf(ch, here, "is", c.Is, []string{AnswerSuccess, AnswerPending, AnswerRefused, AnswerRetryLater,
			AnswerUnknown})
		for _, f := range [][2]string{
			{"code", c.Code}, {"message", c.Message}, {"bucket", c.Bucket}, {"window_seconds", c.WindowSeconds},
		} {
			ch.field(here, f[0], f[1], false)
		}
		if c.Is == AnswerRetryLater {
			ch.within(here, "wait_seconds", c.WaitSeconds, 1, 86400)
			ch.header(here, "reset", c.Reset)
		} else if c.RateLimit || c.Bucket != "" || c.WindowSeconds != "" || c.Reset != "" || c.WaitSeconds != 0 {
			ch.fail(here, "only retry_later has rate_limit, bucket, window_seconds, reset and wait_seconds")
		}
	}
}

func (ch *checker) output(fields []string, at path) {
	for i, name := range fields {
		if !fieldPath.MatchString(name) {
			ch.fail(at.to("output", i), "output is %q; it must name a field", name)
		}
	}
}

func (ch *checker) lookup(c *Catalog, a *Action, at path) {
	l := a.Call.Lookup
	ch.asks(c, a, at, l.Action)
	ch.field(at, "items", l.Items, false)
	ch.page(l, at)
	for _, f := range [][2]string{{"digest", l.Digest}, {"count", l.Count}, {"first_key", l.FirstKey},
		{"last_key", l.LastKey}, {"at", l.At}} {
		ch.field(at, f[0], f[1], false)
	}
	ch.tellsApart(a, at)
	if l.DigestForm == "" {
		l.DigestForm = digestSHA256
	}
	oneOf(ch, at, "digest_form", l.DigestForm, []string{digestSHA256, DigestCRC32C})
	ch.field(at, "reference", l.Reference, true)
	ch.within(at, "settles_within_seconds", l.SettlesWithinSeconds, 0, 86400)
	if l.HorizonSeconds <= l.SettlesWithinSeconds {
		ch.fail(at.to("horizon_seconds"), "horizon_seconds must be longer than settles_within_seconds")
	}
}

// tellsApart checks by what a lookup finds its call.
func (ch *checker) tellsApart(a *Action, at path) {
	l := a.Call.Lookup
	if len(l.Match) == 0 {
		if l.Digest == "" && (l.Count == "" || l.FirstKey == "" || l.LastKey == "") {
			ch.fail(at, "a lookup must name the digest, or count, first_key and last_key: "+
				"otherwise it cannot tell one call from another")
		}
		if len(l.Output) > 0 {
			ch.fail(at.to("output"), "only a lookup of one record, by match, has an output")
		}
		return
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(l.Match, &fields); err != nil || len(fields) == 0 {
		ch.fail(at.to("match"), "match must be an object: fields of an element, and the values that they must have")
	}
	for name := range fields {
		ch.field(at.to("match"), name, name, true)
	}
	if a.Bulk || l.Digest != "" || l.Count != "" || l.FirstKey != "" || l.LastKey != "" {
		ch.fail(at.to("match"), "match finds a call of one record by its fields alone: it has no digest, count or keys")
	}
	ch.output(l.Output, at)
}

func (ch *checker) page(l *Lookup, at path) {
	if (l.Page != nil) == l.Whole {
		ch.fail(at, "a lookup must say how its answer goes on (page), or that it never does (whole: true)")
	}
	if l.Page == nil {
		return
	}
	ch.pageOf(l.Page, l.Params, at.to("page"))
}

func (ch *checker) pageOf(p *Page, params JSON, here path) {
	places := 0
	for _, said := range []bool{p.Cursor != "", p.Link != "", p.LinkHeader} {
		if said {
			places++
		}
	}
	if places != 1 {
		ch.fail(here, "a page needs one of cursor, link and link_header: where the answer tells of the next page")
	}
	ch.field(here, "cursor", p.Cursor, false)
	ch.field(here, "link", p.Link, false)
	if p.Cursor != "" && !strings.Contains(string(params), "call.cursor") {
		ch.fail(here.to("cursor"), "the params of the question must pass the cursor on: {{ call.cursor }}")
	}
	if p.MaxPages == 0 {
		p.MaxPages = defaultMaxPages
	}
	ch.within(here, "max_pages", p.MaxPages, 2, mostPages)
}

func (ch *checker) result(c *Catalog, a *Action, at path) {
	r := a.Call.Result
	ch.asks(c, a, at, r.Action)
	switch {
	case r.DoneWhen == "":
		ch.field(at, "state", r.State, true)
		if len(r.Running) == 0 {
			ch.fail(at, "running must name the states in which the result is not there yet")
		}
		if r.FailedWhen != "" {
			ch.fail(at.to("failed_when"), "failed_when goes with done_when; beside state, failed names the states")
		}
	case r.State != "" || len(r.Running)+len(r.Failed) > 0:
		ch.fail(at, "a result says by state or by done_when that it is there, not by both")
	}
	ch.rowsFrom(c, a, at.to("rows_from"))
	ch.within(at, "every_seconds", r.EverySeconds, 1, 3600)
	ch.rows(r.Rows, a.Call.Records, at.to("rows"), true)
	ch.output(r.Output, at)
	ch.field(at, "message", r.Message, false)
}

// asks checks the action by which another one asks the provider: it must exist beside it and be harmless to repeat.
func (ch *checker) asks(c *Catalog, a *Action, at path, id string) *Action {
	other := ch.beside(c, a, at, id)
	if other != nil && (other.Bulk || other.OutcomeCheck != CheckSafe) {
		ch.fail(at.to("action"), "action %q must be a single-record call with outcome_check safe", id)
		return nil
	}
	return other
}

// beside checks that an action of the platform makes calls; nil where none of that name does.
func (ch *checker) beside(c *Catalog, a *Action, at path, id string) *Action {
	other, ok := c.Action(id)
	switch {
	case !ok:
		ch.fail(at.to("action"), "there is no action %q", id)
	case other.PlatformID != a.PlatformID:
		ch.fail(at.to("action"), "action %q belongs to another platform", id)
	case other.Call == nil:
		ch.fail(at.to("action"), "action %q must be a single-record call with outcome_check safe", id)
	default:
		return other
	}
	return nil
}
