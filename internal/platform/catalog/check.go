package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/expr"
)

// Lanes are the lanes that work may wait in, most urgent first.
var Lanes = []string{"interactive", "compliance", "bulk", "backfill"}

// DefaultLane is the lane of calls of which nothing says where they go.
const DefaultLane = "interactive"

// windowSeconds are the lengths of windows that a budget may have.
var windowSeconds = []int{60, 3600, 86400}

// windowKinds are the kinds of further windows.
var windowKinds = []string{"aligned", "rolling"}

// Values that the contract knows. Services of kinds that have no executor may be described, but have no actions.
var (
	platformStatuses = []string{"active", "inactive", "coming_soon"}
	kinds            = []string{"utility", "api", kindMCP, kindCLI, "product"}
	executed         = []string{"utility", "api", kindMCP, kindCLI}
	protocols        = []string{"REST", ProtocolSOAP, ProtocolGraphQL}
	authMethods      = []string{"none", "basic_auth", "api_key", "jwt", "oauth2", "aws_access_key", "mutual_tls"}
	fieldTypes       = []string{"string", "password"}
	utilities        = []string{"transform", "fail", "store_read", "store_write", "emit_event", "delay", "start_flow",
		"wait_for_event"}
	outcomeChecks = []OutcomeCheck{CheckSafe, CheckKeyed, CheckLookup, CheckNone}
	secretFields  = map[string][]string{
		"basic_auth": {"username", "password"}, "api_key": {"api_key"}, "jwt": {"algorithm", "issuer", "key"},
		"oauth2": {"client_id", "client_secret"}, "aws_access_key": {"access_key_id", "secret_access_key"},
		"mutual_tls": {"client_certificate", "client_key"},
	}
	slug      = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	fieldPath = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
)

// checker finds the mistakes of one file.
type checker struct {
	file string
	text []byte
	root *yaml.Node // of text; nil until a mistake needs its line
	p    *Platform
	errs []error
}

// path is a place in the file: field names and indexes.
type path []any

func (p path) to(steps ...any) path {
	return append(append(make(path, 0, len(p)+len(steps)), p...), steps...)
}

func (ch *checker) fail(at path, format string, args ...any) {
	if ch.root == nil {
		ch.root = &yaml.Node{}
		_ = yaml.Unmarshal(ch.text, ch.root) // it was decoded before
	}
	ch.errs = append(ch.errs, &Mistake{ch.file, lineOf(ch.root, at), fmt.Sprintf(format, args...)})
}

// need reports an empty text.
func (ch *checker) need(at path, field, value string) {
	if strings.TrimSpace(value) == "" {
		ch.fail(at.to(field), "%s must not be empty", field)
	}
}

func oneOf[T ~string](ch *checker, at path, field string, value T, allowed []T) {
	if !slices.Contains(allowed, value) {
		ch.fail(at.to(field), "%s is %q; it must be one of %v", field, value, allowed)
	}
}

func (ch *checker) within(at path, field string, value, low, high int) {
	if value < low || value > high {
		ch.fail(at.to(field), "%s is %d; it must be from %d to %d", field, value, low, high)
	}
}

// field checks the name of a field in an answer; a dot leads into an object.
func (ch *checker) field(at path, name, value string, required bool) {
	if value == "" && !required {
		return
	}
	if !fieldPath.MatchString(value) {
		ch.fail(at.to(name), "%s is %q; it must name a field (letters, digits, _ and -, a dot between levels)", name,
			value)
	}
}

func (ch *checker) platform(c *Catalog) {
	p := ch.p
	if !slug.MatchString(p.ID) {
		ch.fail(path{"id"}, "id is %q; it must be a slug such as my_platform", p.ID)
	}
	ch.need(nil, "name", p.Name)
	ch.need(nil, "description", p.Description)
	oneOf(ch, nil, "status", p.Status, platformStatuses)
	if p.Account != nil {
		ch.account(p.Account)
	}
	ch.labels()
	if len(p.Services) == 0 {
		ch.fail(path{"services"}, "a platform needs at least one service")
	}
	for i, s := range p.Services {
		ch.service(c, s, path{"services", i})
	}
	ch.questions(c)
}

func (ch *checker) rootPath(at path, field, value string) {
	if !strings.HasPrefix(value, "/") || strings.ContainsAny(value, "{} #") {
		ch.fail(at.to(field), "%s is %q; it must start with / and hold no expression", field, value)
	}
}

func (ch *checker) service(c *Catalog, s *Service, at path) {
	ch.nested(at, s.ID, ch.p.ID, "<platform>__<service>")
	ch.need(at, "name", s.Name)
	ch.need(at, "description", s.Description)
	oneOf(ch, at, "kind", s.Kind, kinds)
	oneOf(ch, at, "protocol", s.Protocol, protocols)
	oneOf(ch, at, "auth_method", s.AuthMethod, authMethods)
	oneOf(ch, at, "status", s.Status, platformStatuses)
	ch.baseURL(s, at)
	ch.soap(s, at)
	if s.Check != "" {
		ch.rootPath(at, "check", s.Check)
	}
	ch.auths(s, at)
	if s.RequiresConnection && s.AuthMethod == "none" {
		ch.fail(at.to("requires_connection"), "a service with auth_method none requires no connection")
	}
	ch.buckets(s, at)
	if len(s.Actions) > 0 && !slices.Contains(executed, s.Kind) {
		ch.fail(at.to("actions"), "a service of kind %q cannot have actions", s.Kind)
	}
	for j, a := range s.Actions {
		ch.action(c, s, a, at.to("actions", j))
	}
}

// nested checks that an id is its parent's id, two underscores and a slug.
func (ch *checker) nested(at path, id, parent, form string) {
	rest, ok := strings.CutPrefix(id, parent+"__")
	if !ok || !slug.MatchString(rest) {
		ch.fail(at.to("id"), "id is %q; it must have the form %s and start with %q", id, form, parent+"__")
	}
}

func (ch *checker) buckets(s *Service, at path) {
	if len(s.RateBuckets) > 0 && ch.p.Account == nil {
		ch.fail(at.to("rate_buckets"),
			"a platform with rate buckets needs an account block: budgets belong to an account")
	}
	for _, name := range slices.Sorted(maps.Keys(s.RateBuckets)) {
		b, here := s.RateBuckets[name], at.to("rate_buckets", name)
		if b == nil {
			ch.fail(here, "bucket %q is empty", name)
			delete(s.RateBuckets, name)
			continue
		}
		if !slug.MatchString(name) {
			ch.fail(here, "bucket %q must be a slug", name)
		}
		ch.need(here, "label", b.Label)
		oneOf(ch, here, "default_lane", b.DefaultLane, Lanes)
		ch.within(here, "min_spacing_ms", b.MinSpacingMS, 0, 3600_000)
		if len(b.Windows)+len(b.Further)+b.MaxInFlight == 0 {
			ch.fail(here.to("windows"), "bucket %q needs at least one window, or max_in_flight", name)
		}
		ch.within(here, "max_in_flight", b.MaxInFlight, 0, 1000)
		ch.heldUntil(s, name, b, here)
		ch.further(b, here)
		ch.reportedLimits(b, here)
		ch.cost(b, here)
		ch.scoped(b, here)
		for _, seconds := range slices.Sorted(maps.Keys(b.Windows)) {
			limit := b.Windows[seconds]
			if !slices.Contains(windowSeconds, seconds) || limit < 1 {
				ch.fail(here.to("windows"),
					"window %d: %d; a window is one of %v seconds, with a cap of at least 1 call; "+
						"others are further_windows", seconds, limit, windowSeconds)
			}
		}
		members := membersOf(s, name)
		if len(members) == 0 {
			ch.fail(here, "no action spends bucket %q", name)
		}
		for _, id := range slices.Sorted(maps.Keys(b.DefaultLaneByAction)) {
			lane := b.DefaultLaneByAction[id]
			if !slices.Contains(members, id) || !slices.Contains(Lanes, lane) {
				ch.fail(here.to("default_lane_by_action", id),
					"%s: %s; it must map an action that spends the bucket to one of %v", id, lane, Lanes)
			}
		}
	}
}

// heldUntil checks that every call of a bucket whose places are held until a result has one.
func (ch *checker) heldUntil(s *Service, name string, b *RateBucket, at path) {
	if b.HeldUntil == "" {
		return
	}
	if b.HeldUntil != HeldUntilResult || b.MaxInFlight == 0 {
		ch.fail(at.to("held_until"), "held_until is %q; it must be %s, beside max_in_flight", b.HeldUntil,
			HeldUntilResult)
	}
	for _, a := range s.Actions {
		if slices.Contains(a.Buckets, name) && (a.Call == nil || a.Call.Result == nil) {
			ch.fail(at.to("held_until"), "%s has no result", a.ID)
		}
	}
}

// furtherMost bounds the further windows of a bucket.
const furtherMost = 5

func (ch *checker) further(b *RateBucket, at path) {
	if len(b.Further) > furtherMost {
		ch.fail(at.to("further_windows"), "there are %d further windows; at most %d are allowed", len(b.Further),
			furtherMost)
	}
	seen := map[int]bool{}
	for i, w := range b.Further {
		here := at.to("further_windows", i)
		ch.within(here, "seconds", w.Seconds, 1, day)
		ch.within(here, "calls", w.Calls, 1, 1_000_000_000)
		oneOf(ch, here, "kind", w.Kind, windowKinds)
		if _, also := b.Windows[w.Seconds]; also || seen[w.Seconds] {
			ch.fail(here.to("seconds"), "a window of %d seconds stands twice", w.Seconds)
		}
		seen[w.Seconds] = true
		if bad := w.Misfit(); bad != "" {
			ch.fail(here.to("seconds"), "seconds is %d; %s", w.Seconds, bad)
		}
	}
}

// scoped checks a bucket that has a budget for each credential, user or value: windows that roll, and calls under way,
// are all that is kept of those, since nobody knows beforehand which there will be.
func (ch *checker) scoped(b *RateBucket, at path) {
	if b.Per == "" {
		return
	}
	if !b.bySignIn() && !strings.Contains(b.Per, "{{") {
		ch.fail(at.to("per"), "per is %q; it must be %s, %s, or a template over params", b.Per, PerCredential, PerUser)
	}
	aligned := func(w Window) bool { return !b.Rolls(w.Seconds) }
	if len(b.Windows)+b.MinSpacingMS+len(b.ReportedLimits) > 0 || b.Cost != nil ||
		slices.ContainsFunc(b.Further, aligned) {
		ch.fail(at.to("per"), "a bucket with per has further_windows that roll, or are shorter than a minute, "+
			"max_in_flight, and nothing else")
	}
}

// bySignIn reports whether there is a budget for each of those who sign in.
func (b *RateBucket) bySignIn() bool { return b.Per == PerCredential || b.Per == PerUser }

// per compiles what the buckets of an action are each for; service is the place of the service.
func (ch *checker) per(s *Service, a *Action, service path, params map[string]bool) {
	t := templates{ch: ch, known: params}
	for i, name := range a.Buckets {
		b := s.RateBuckets[name]
		if b == nil || b.Per == "" {
			continue
		}
		at := service.to("rate_buckets", name, "per")
		if i == 0 {
			ch.fail(at, "%s: the first bucket of an action is the one whose queue it waits in, "+
				"and is that of an account", a.ID)
		}
		if b.bySignIn() {
			continue
		}
		for _, m := range paramName.FindAllStringSubmatch(b.Per, -1) {
			if r := a.Call.Records; r != nil && m[1] == r.Param {
				ch.fail(at, "%s: a call has %s of many records: per names what they have in common", a.ID, m[1])
			}
		}
		if a.Call.Compiled.Per == nil {
			a.Call.Compiled.Per = map[string]*expr.Template{}
		}
		a.Call.Compiled.Per[name] = t.text(at, b.Per)
	}
}

// limitInBody is where fields of the body tell.
const limitInBody = "body"

// headerName is what a header's name may be.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

// header checks the name of a header, which may be missing.
func (ch *checker) header(at path, field, name string) {
	if name != "" && !headerName.MatchString(name) {
		ch.fail(at.to(field), "%s is %q, which is no name of a header", field, name)
	}
}

// mostCost bounds what a call may cost of a budget.
const mostCost = 1_000_000

func (ch *checker) price(at path, p Price) {
	ch.within(at, "call", p.Call, 0, mostCost)
	ch.within(at, "record", p.Record, 0, mostCost)
}

func (ch *checker) cost(b *RateBucket, at path) {
	if b.Cost == nil {
		return
	}
	here := at.to("cost")
	ch.price(here, b.Cost.Price)
	ch.field(here, "field", b.Cost.Field, false)
	ch.header(here, "header", b.Cost.Header)
}

func (ch *checker) reportedLimits(b *RateBucket, at path) {
	for i, t := range b.ReportedLimits {
		here := at.to("reported_limits", i)
		if !slices.Contains(b.Lengths(), t.WindowSeconds) {
			ch.fail(here.to("window_seconds"), "window_seconds is %d; the bucket has no window of this length",
				t.WindowSeconds)
		}
		if t.In != "" {
			oneOf(ch, here, "in", t.In, []string{"headers", limitInBody})
		}
		for field, name := range map[string]string{"limit": t.Limit, "remaining": t.Remaining, "used": t.Used,
			"pair": t.Pair, "restore": t.Restore} {
			if t.In == limitInBody {
				ch.field(here, field, name, false)
			} else {
				ch.header(here, field, name)
			}
		}
		if t.In == limitInBody && t.Pair != "" {
			ch.fail(here.to("pair"), "only headers have pairs")
		}
		if t.Pair == "" && t.Used == "" && t.Remaining == "" && t.Limit == "" {
			ch.fail(here, "it needs the name of a header: limit, remaining, used or pair")
		}
		if t.Remaining != "" && t.Limit == "" {
			ch.fail(here.to("remaining"), "remaining needs limit beside it: what is spent is the difference")
		}
	}
}

func membersOf(s *Service, bucket string) []string {
	var out []string
	for _, a := range s.Actions {
		if slices.Contains(a.Buckets, bucket) {
			out = append(out, a.ID)
		}
	}
	return out
}

func (ch *checker) action(c *Catalog, s *Service, a *Action, at path) {
	ch.nested(at, a.ID, s.ID, "<platform>__<service>__<action>")
	ch.need(at, "name", a.Name)
	ch.need(at, "description", a.Description)
	for i, name := range a.Buckets {
		if _, ok := s.RateBuckets[name]; !ok {
			ch.fail(at.to("buckets", i), "service %s has no rate bucket %q", s.ID, name)
		}
		if slices.Contains(a.Buckets[:i], name) {
			ch.fail(at.to("buckets", i), "bucket %q stands twice", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Costs)) {
		if !slices.Contains(a.Buckets, name) {
			ch.fail(at.to("costs", name), "the action does not spend bucket %q", name)
		}
		ch.price(at.to("costs", name), a.Costs[name])
	}
	oneOf(ch, at, "default_lane", a.DefaultLane, Lanes)
	oneOf(ch, at, "outcome_check", a.OutcomeCheck, outcomeChecks)
	ch.within(at, "max_records_per_request", a.MaxRecordsPerRequest, 1, 1_000_000)
	if a.MaxRecordsPerRequest > 1 && !a.Bulk {
		ch.fail(at.to("max_records_per_request"), "only a bulk action carries more than one record per request")
	}
	if a.MaxBytesPerRequest < 0 || (a.Bulk && a.MaxBytesPerRequest == 0) {
		ch.fail(at.to("max_bytes_per_request"), "max_bytes_per_request must be positive; a bulk action needs it")
	}
	properties := ch.schemas(a, at)
	if (a.Utility == "") == (a.Call == nil) {
		ch.fail(at, "action %s needs either a call or a utility", a.ID)
		return
	}
	if a.Call == nil {
		oneOf(ch, at, "utility", a.Utility, utilities)
		if s.Kind != "utility" {
			ch.fail(at.to("utility"), "a utility action belongs in a service of kind utility")
		}
		return
	}
	own := a.Call.Tool != "" || a.Call.Command != ""
	switch {
	case s.Kind == kindMCP:
		ch.tool(s, a, at.to("call"))
	case s.Kind == kindCLI:
		ch.command(s, a, at.to("call"))
	case s.Kind != "api" || own:
		ch.fail(at.to("call"),
			"calls are made only for services of kind api, of tools for kind mcp, of commands for cli")
	}
	ch.protocol(s, a, at.to("call"))
	ch.call(c, s, a, at.to("call"), properties)
}

// schemas compiles the action's schemas and returns the names of its parameters.
func (ch *checker) schemas(a *Action, at path) map[string]bool {
	var shape struct {
		Type       any            `json:"type"`
		Properties map[string]any `json:"properties"`
	}
	names := map[string]bool{}
	if len(a.OutputSchema) == 0 {
		a.OutputSchema = JSON("{}")
	} else if _, err := compileSchema(a.OutputSchema); err != nil {
		ch.fail(at.to("output_schema"), "output_schema is no JSON Schema: %s", oneLine(err))
	}
	if len(a.ParamsSchema) == 0 {
		ch.fail(at, "action %s needs a params_schema", a.ID)
		return names
	}
	compiled, err := compileSchema(a.ParamsSchema)
	if err != nil {
		ch.fail(at.to("params_schema"), "params_schema is no JSON Schema: %s", oneLine(err))
		return names
	}
	a.params = compiled
	if err := json.Unmarshal(a.ParamsSchema, &shape); err != nil || shape.Type != "object" {
		ch.fail(at.to("params_schema"), "params_schema must describe an object")
	}
	for name, of := range shape.Properties {
		names[name] = true
		if _, anything := saysOnly(of); anything {
			a.free = append(a.free, name)
		}
	}
	return names
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
