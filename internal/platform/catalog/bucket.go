package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// RateBucket is a budget by operation type. The map key is the provider's name for it.
type RateBucket struct {
	Label               string            `yaml:"label"`
	DefaultLane         string            `yaml:"default_lane"`
	DefaultLaneByAction map[string]string `yaml:"default_lane_by_action"`
	// MaxRecordsPerRequest and MemberActionIDs are filled in from the actions when the catalog is loaded.
	MaxRecordsPerRequest int      `yaml:"-"`
	MemberActionIDs      []string `yaml:"-"`
	// Windows maps 60, 3600 and 86400 (seconds) to the provider's cap in calls, of windows that begin and end by its
	// clock.
	Windows map[int]int `yaml:"windows"`
	// Further are windows of other lengths, or that roll.
	Further []Window `yaml:"further_windows"`
	// Per says of what there is a budget each within the account: of a credential (PerCredential), of a user (PerUser),
	// or of what a template over the parameters of a call gives. Empty: the account has one.
	Per string `yaml:"per"`
	// MinSpacingMS is the least time between two calls, in milliseconds; 0 for none.
	MinSpacingMS int `yaml:"min_spacing_ms"`
	// MaxInFlight is how many calls may be under way at once, of all lanes, organizations and processes; 0 for no such
	// limit.
	MaxInFlight int `yaml:"max_in_flight"`
	// HeldUntil says how long a call is under way: until its answer (empty), or until its result is known
	// (HeldUntilResult).
	HeldUntil string `yaml:"held_until"`
	// ReportedLimits says where answers tell what is left of windows, beside the headers that are read without it.
	ReportedLimits []ReportedLimit `yaml:"reported_limits"`
	// Cost is what a call costs, where that is not one of the units that the caps are in.
	Cost *Cost `yaml:"cost"`
	// CountsRefused says that the provider counts calls that it answers with one of an action's refused or retry_later
	// statuses.
	CountsRefused bool `yaml:"counts_refused"`
}

// HeldUntilResult is the HeldUntil of a bucket whose calls begin jobs of which so many may be open.
const HeldUntilResult = "result"

// PerCredential is the Per of a bucket that counts for each credential.
const PerCredential = "credential"

// PerUser is the Per of a bucket that counts for each user who signs in, by whatever credentials.
const PerUser = "user"

// Price is what a call costs of a budget: Call, and Record for each of its records.
type Price struct {
	Call   int `yaml:"call"`
	Record int `yaml:"record"`
}

// Cost is the price of calls before they are made, and where answers say what one did cost.
type Cost struct {
	Price `yaml:",inline"`
	// Field and Header name where an answer says it; empty where none does.
	Field  string `yaml:"field"`
	Header string `yaml:"header"`
}

// CostOf is what a call of the action with so many records may cost of a bucket; at least 1.
func (a *Action) CostOf(bucket string, b *RateBucket, records int) int {
	price, own := a.Costs[bucket]
	if !own && b.Cost != nil {
		price = b.Cost.Price
	}
	return max(price.Call+price.Record*records, 1)
}

// Window is a window of a budget.
type Window struct {
	Seconds int `yaml:"seconds" json:"seconds"`
	// Calls is the provider's cap.
	Calls int `yaml:"calls" json:"calls"`
	// Kind is aligned where it begins and ends by the provider's clock, rolling where no interval of the length may
	// hold more.
	Kind string `yaml:"kind" json:"kind"`
}

// Limits are those that the owner of a credential sets.
type Limits struct {
	Windows []Window `json:"windows"`
	// MaxInFlight is how many calls may be under way at once; 0 for as many as the catalog says.
	MaxInFlight int `json:"max_in_flight,omitempty"`
}

// ParseLimits reads limits as they are stored; nil for none.
func ParseLimits(stored []byte) (*Limits, error) {
	if len(stored) == 0 {
		return nil, nil //nolint:nilnil // none is no error
	}
	var out Limits
	if err := json.Unmarshal(stored, &out); err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	return &out, nil
}

// Bucket is a budget that has these limits. How many records a call takes is for the action to say.
func (l *Limits) Bucket(label string) *RateBucket {
	return &RateBucket{Label: label, Further: l.Windows, MaxInFlight: l.MaxInFlight, MaxRecordsPerRequest: 1}
}

// Budget is a rate bucket of an account by its name.
type Budget struct {
	Name    string
	Service *Service
	*RateBucket
}

// Budgets are those of an account of the platform, in order: of its services, and where the owner of the account, or of
// a credential that is of none, has set limits, of these.
func (p *Platform) Budgets(limits *Limits) (out []Budget) {
	for _, s := range p.Services {
		for _, name := range slices.Sorted(maps.Keys(s.RateBuckets)) {
			out = append(out, Budget{name, s, s.RateBuckets[name]})
		}
	}
	switch {
	case limits == nil:
	case p.OwnerLimited():
		out = append(out, Budget{p.ID, p.Services[0], limits.Bucket(p.Name)})
	default:
		for _, s := range p.Services {
			if slices.ContainsFunc(s.Actions, func(a *Action) bool { return a.Call != nil }) {
				out = append(out, Budget{s.ID, s, limits.Bucket(s.Name)})
			}
		}
	}
	return out
}

// OwnerBudget names the budget of an action that no provider meters, where the owner of its credential sets limits: all
// services of an account share one, else each has its own.
func (a *Action) OwnerBudget() string {
	if a.platform != nil && a.platform.OwnerLimited() {
		return a.platform.ID
	}
	return a.ServiceID
}

// Misfit says why a window cannot be kept as it is said; empty where it can.
func (w Window) Misfit() string {
	if w.Kind == "aligned" && w.Seconds >= leastAligned && day%w.Seconds != 0 {
		return "an aligned window of a minute or more must fit into a day a whole number of times: " +
			"else say that it is rolling"
	}
	return ""
}

// ReportedLimit names the headers, or the fields, in which an answer tells of a window.
type ReportedLimit struct {
	WindowSeconds int `yaml:"window_seconds"`
	// In is "body" where the names are of fields of the body.
	In string `yaml:"in"`
	// Limit is how many calls the window allows, Remaining how many of them are left, Used how many are spent.
	Limit     string `yaml:"limit"`
	Remaining string `yaml:"remaining"`
	Used      string `yaml:"used"`
	// Pair is a header that has both as used/limit, be it behind a name: api-usage=18/5000.
	Pair string `yaml:"pair"`
	// Restore is how much comes back a second: of a slower plan the window allows no more than that.
	Restore string `yaml:"restore"`
}

// Lengths are the lengths of the bucket's windows in seconds, in ascending order.
func (b *RateBucket) Lengths() []int {
	out := slices.Sorted(maps.Keys(b.Windows))
	for _, w := range b.Further {
		out = append(out, w.Seconds)
	}
	slices.Sort(out)
	return out
}

// Rolls reports whether the windows of this length are kept as rolling ones. Those below a minute always are: whoever
// stays within a cap in every interval does so in those that the clock names, and no call is counted in each second
// that it may take.
func (b *RateBucket) Rolls(seconds int) bool {
	if seconds < leastAligned || day%seconds != 0 {
		return true
	}
	return slices.ContainsFunc(b.Further, func(w Window) bool { return w.Seconds == seconds && w.Kind == "rolling" })
}

// leastAligned is the least length in seconds of a window that is kept by the clock, day that of a day.
const leastAligned, day = 60, 86400
