package catalog

import (
	"maps"
	"slices"
	"time"
)

// Account says how a provider account is identified and where its own counters stand.
type Account struct {
	// TimeZone aligns the windows of accounts that do not name their own zone. IANA name.
	TimeZone string `yaml:"time_zone"`
	// TimeZones are those of accounts by the host that they are called at, for platforms with several data centres.
	TimeZones map[string]string `yaml:"time_zones"`
	// Whoami asks who the credential belongs to.
	Whoami Probe `yaml:"whoami"`
	// Counters asks for the provider's own counters; nil where it has none.
	Counters *Counters `yaml:"counters"`
	// ClockSkewSeconds is how far the provider's clock may stand from ours: a call counts in every window that it may
	// touch.
	ClockSkewSeconds int `yaml:"clock_skew_seconds"`
}

// Question is how something about an account is asked: by a GET of a path, or by an action.
type Question struct {
	Path string `yaml:"path"`
	// Action is called without parameters. What its answer proves, the action itself says.
	Action string `yaml:"action"`
	// Spends is the bucket that the platform counts the question in; empty for none. An action says so by its own
	// buckets.
	Spends string `yaml:"spends"`

	action *Action
}

// By is the action that asks; nil where a GET does.
func (q *Question) By() *Action { return q.action }

// Debits is the bucket that the question is counted in; empty for none.
func (q *Question) Debits() string {
	if q.action == nil {
		return q.Spends
	}
	for _, name := range q.action.Buckets {
		if b := q.action.service.RateBuckets[name]; b != nil && len(b.Windows)+len(b.Further) > 0 {
			return name
		}
	}
	return ""
}

// Probe asks for the account; its answer is read by field names.
type Probe struct {
	Question      `yaml:",inline"`
	AccountNumber string `yaml:"account_number"`
	// AccountLabel is the label whose value is the number instead, where the address is the account's own.
	AccountLabel string `yaml:"account_label"`
	AccountName  string `yaml:"account_name"`
	TimeZone     string `yaml:"time_zone"`
}

// Counters maps the provider's counters to buckets and windows.
type Counters struct {
	Question `yaml:",inline"`
	// AsOf names the field with the time at which the counters were read.
	AsOf string `yaml:"as_of"`
	// Items names the counters, an array or an object of them by their names; in each, Bucket, WindowSeconds, Limit and
	// Value name the fields.
	Items string `yaml:"items"`
	// Within names an array in each element of Items whose elements are the counters. They have the fields of the
	// element around them, too.
	Within string `yaml:"within"`
	// Bucket names the field with the name of a counter; empty where Items is an object.
	Bucket string `yaml:"bucket"`
	// Names are buckets by the names that the provider has for them; counters of other names are passed over. Without
	// it the names are the same.
	Names map[string]string `yaml:"names"`
	// WindowSeconds names the field with the window's length; Window is that of all counters instead.
	WindowSeconds string `yaml:"window_seconds"`
	Window        int    `yaml:"window"`
	Limit         string `yaml:"limit"`
	// Value names the field with what is spent; Remaining, with what is left of the limit, stands instead.
	Value     string `yaml:"value"`
	Remaining string `yaml:"remaining"`
	// Partial says that the counters count the calls of the user alone who asks: a reading raises what the account has
	// spent, and proves nothing of what others of its users have.
	Partial bool `yaml:"partial"`
	// LagSeconds is how old the counters may be.
	LagSeconds int `yaml:"lag_seconds"`
	// EverySeconds is how often the dispatcher asks while it sends.
	EverySeconds int `yaml:"every_seconds"`
}

func (ch *checker) account(a *Account) {
	at := path{"account"}
	ch.zone(at, "time_zone", a.TimeZone)
	for _, host := range slices.Sorted(maps.Keys(a.TimeZones)) {
		ch.zone(at.to("time_zones"), host, a.TimeZones[host])
	}
	ch.within(at, "clock_skew_seconds", a.ClockSkewSeconds, 0, 60)
	w := at.to("whoami")
	ch.field(w, "account_number", a.Whoami.AccountNumber, a.Whoami.AccountLabel == "")
	if label := a.Whoami.AccountLabel; label != "" && (a.Whoami.AccountNumber != "" || ch.p.Labels[label] == nil ||
		ch.p.Labels[label].Token != "") {
		ch.fail(w.to("account_label"), "account_label is %q; it must be a label of the platform that the credential "+
			"fills, and stands instead of account_number", label)
	}
	ch.field(w, "account_name", a.Whoami.AccountName, false)
	ch.field(w, "time_zone", a.Whoami.TimeZone, false)
	if a.Counters != nil {
		ch.counters(a.Counters, at.to("counters"))
	}
}

func (ch *checker) zone(at path, field, name string) {
	if _, err := time.LoadLocation(name); err != nil || name == "" || name == "Local" {
		ch.fail(at.to(field), "%s is %q; it must be an IANA name such as UTC or Europe/Paris", field, name)
	}
}

func (ch *checker) counters(n *Counters, at path) {
	for _, f := range [][2]string{
		{"as_of", n.AsOf}, {"items", n.Items}, {"within", n.Within}, {"bucket", n.Bucket},
		{"window_seconds", n.WindowSeconds},
		{"limit", n.Limit}, {"value", n.Value}, {"remaining", n.Remaining},
	} {
		ch.field(at, f[0], f[1], false)
	}
	if n.Bucket == "" && (n.Items == "" && len(n.Names) == 0 || n.Within != "") {
		ch.fail(at.to("bucket"), "bucket must name the field that says what a counter counts, unless items, "+
			"or the answer, is an object of counters by their names")
	}
	for _, name := range slices.Sorted(maps.Keys(n.Names)) {
		if ch.p.ServiceOf(n.Names[name]) == nil {
			ch.fail(at.to("names", name), "there is no rate bucket %q", n.Names[name])
		}
	}
	if (n.WindowSeconds == "") == (n.Window == 0) {
		ch.fail(at.to("window_seconds"),
			"counters need either window_seconds, the field with the length of their window, or window, the length")
	}
	if n.Window != 0 {
		ch.within(at, "window", n.Window, 1, day)
	}
	if (n.Value == "") == (n.Remaining == "") || n.Remaining != "" && n.Limit == "" {
		ch.fail(at.to("value"), "counters need either value, or remaining together with limit")
	}
	ch.within(at, "lag_seconds", n.LagSeconds, 0, 3600)
	ch.within(at, "every_seconds", n.EverySeconds, 1, 3600)
}

// questions checks how things are asked about accounts and credentials, once the actions are checked that ask.
func (ch *checker) questions(c *Catalog) {
	if a := ch.p.Account; a != nil {
		at := path{"account"}
		ch.question(c, &a.Whoami.Question, at.to("whoami"))
		if a.Counters != nil {
			ch.question(c, &a.Counters.Question, at.to("counters"))
		}
	}
	for i, s := range ch.p.Services {
		at := path{"services", i}
		if s.CheckAction != "" {
			s.checkedBy = ch.asker(c, s.CheckAction, at.to("check_action"))
		}
		if s.CheckAction != "" && s.Check != "" {
			ch.fail(at.to("check_action"), "a credential is tested by check or by check_action, not by both")
		}
	}
}

// CheckedBy is the action that tests a credential; nil where none does.
func (s *Service) CheckedBy() *Action { return s.checkedBy }

func (ch *checker) question(c *Catalog, q *Question, at path) {
	switch {
	case q.Action == "":
		ch.probePath(at, q.Path)
		if q.Spends != "" && ch.p.ServiceOf(q.Spends) == nil {
			ch.fail(at.to("spends"), "spends is %q; it must be a rate bucket of a service of the platform", q.Spends)
		}
	case q.Path != "" || q.Spends != "":
		ch.fail(at, "an action asks by itself: there is neither path nor spends beside it")
	default:
		q.action = ch.asker(c, q.Action, at.to("action"))
	}
}

// asker is an action that is called without parameters, and is harmless to repeat; nil for a mistake.
func (ch *checker) asker(c *Catalog, id string, at path) *Action {
	a, ok := c.Action(id)
	switch {
	case !ok || a.PlatformID != ch.p.ID:
		ch.fail(at, "the platform has no action %q", id)
	case a.Call == nil || a.Bulk || a.OutcomeCheck != CheckSafe || a.Call.Command != "" || a.Call.Tool != "":
		ch.fail(at, "action %q must be a call over HTTP of a single record with outcome_check safe", id)
	case a.params != nil && problems(a.params, map[string]any{}, false) != nil:
		ch.fail(at, "action %q is called without parameters, and must need none", id)
	default:
		return a
	}
	return nil
}

func (ch *checker) probePath(at path, value string) { ch.rootPath(at, "path", value) }
