package dialersim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// AccountSettings changes an account: what is nil or empty stays as it is.
type AccountSettings struct {
	// Name is the account_name of whoami.
	Name string `json:"account_name,omitempty"`
	// Password is the only one that the account takes; without one any non-empty password will do.
	Password *string `json:"password,omitempty"`
	// TimeZone is the IANA zone to whose clock the windows are aligned.
	TimeZone string `json:"time_zone,omitempty"`
	// ClockOffsetMS moves the account's clock against the real one.
	ClockOffsetMS *int64 `json:"clock_offset_ms,omitempty"`
	// Limits are calls by operation type ("*": all five) and window length in seconds; 0 is no limit.
	Limits map[string]map[int]int64 `json:"limits,omitempty"`
	// CounterLagMS is how far the counters lag behind.
	CounterLagMS *int64 `json:"counter_lag_ms,omitempty"`
	// Latency is the time to every answer; LatencyByOperation wins over it.
	Latency            *Range           `json:"latency,omitempty"`
	LatencyByOperation map[string]Range `json:"latency_by_operation,omitempty"`
	// ImportDuration is how long an asynchronous import runs.
	ImportDuration *Range `json:"import_duration,omitempty"`
	// Suspended answers everything with 403.
	Suspended *bool `json:"suspended,omitempty"`
	// RetryAfter adds a Retry-After header to 429.
	RetryAfter *bool `json:"retry_after,omitempty"`
	// AlsoSpends are operations as whose calls those of another count, too: modify counts as query as well, or whoami,
	// which else counts as nothing.
	AlsoSpends map[string][]string `json:"also_spends,omitempty"`
	// CountsRefused counts calls that are refused, for the limit too.
	CountsRefused *bool `json:"counts_refused,omitempty"`
	// StrictLists knows only the lists that Lists made; otherwise a list is made when it is first written.
	StrictLists *bool    `json:"strict_lists,omitempty"`
	Lists       []string `json:"lists,omitempty"`
	// ExclusiveImports takes one import at a time in a list; the default.
	ExclusiveImports *bool `json:"exclusive_imports,omitempty"`
	// PageSize is how many imports one answer lists; the header Link then leads on. 0 is no bound.
	PageSize *int `json:"page_size,omitempty"`
	// Digest is how the bytes of an import are summed up: sha256, crc32c (the default), or none. Without instructions
	// for it in the processor sha256 is most of what an upload costs here.
	Digest string `json:"digest,omitempty"`
	// Rules reject rows; an empty list takes all rules away.
	Rules []Rule `json:"rules,omitzero"`
}

// Range is a duration in milliseconds: always FixedMS when that is set, else uniform between MinMS and MaxMS.
type Range struct {
	FixedMS int64 `json:"fixed_ms,omitempty"`
	MinMS   int64 `json:"min_ms,omitempty"`
	MaxMS   int64 `json:"max_ms,omitempty"`
}

const maxRangeMS = 600_000

func (r Range) check(what string) error {
	if min(r.FixedMS, r.MinMS, r.MaxMS) < 0 || max(r.FixedMS, r.MinMS, r.MaxMS) > maxRangeMS {
		return fmt.Errorf("%s is not between 0 and %d ms", what, maxRangeMS)
	}
	if r.MaxMS != 0 && r.MaxMS < r.MinMS {
		return fmt.Errorf("%s has a max_ms below its min_ms", what)
	}
	return nil
}

// pick draws from the range; random returns a number below its argument.
func (r Range) pick(random func(n int64) int64) time.Duration {
	switch {
	case r.FixedMS > 0:
		return time.Duration(r.FixedMS) * time.Millisecond
	case r.MaxMS > r.MinMS:
		spread := time.Duration(r.MaxMS-r.MinMS) * time.Millisecond
		return time.Duration(r.MinMS)*time.Millisecond + time.Duration(random(int64(spread)+1))
	}
	return time.Duration(r.MinMS) * time.Millisecond
}

// settings are an account's settings as the handlers read them. They are never changed, only replaced.
type settings struct {
	name, password string
	zone           *time.Location
	offset, lag    time.Duration
	limits         [metered][len(spans)]int64
	spends         [operations][]operation
	latency        Range
	latencyOf      [operations]*Range
	importDuration Range
	suspended      bool
	retryAfter     bool
	countsRefused  bool
	strictLists    bool
	exclusive      bool
	pageSize       int
	digest         string
	rules          []Rule
	fields         []string
}

func defaultSettings(account string) *settings {
	set := &settings{
		name: "Account " + account, zone: time.UTC, limits: defaultLimits, exclusive: true,
		digest: digestCRC32C, importDuration: Range{FixedMS: 100},
	}
	for op := range metered {
		set.spends[op] = []operation{operation(op)}
	}
	return set
}

// with returns the settings changed by a, or what is wrong with a.
func (set *settings) with(a AccountSettings) (*settings, error) {
	next := *set
	if a.Name != "" {
		next.name = a.Name
	}
	assign(&next.password, a.Password)
	assign(&next.suspended, a.Suspended)
	assign(&next.retryAfter, a.RetryAfter)
	assign(&next.countsRefused, a.CountsRefused)
	assign(&next.strictLists, a.StrictLists)
	assign(&next.exclusive, a.ExclusiveImports)
	assign(&next.pageSize, a.PageSize)
	assign(&next.latency, a.Latency)
	assign(&next.importDuration, a.ImportDuration)
	if a.Digest != "" {
		next.digest = a.Digest
	}
	return &next, errors.Join(
		checkDigest(next.digest), checkPageSize(next.pageSize),
		next.setClock(a), next.setLimits(a.Limits), next.setSpends(a.AlsoSpends),
		next.setLatencies(a.LatencyByOperation), next.setRules(a.Rules),
		next.latency.check("latency"), next.importDuration.check("import_duration"), checkLists(a.Lists))
}

func checkPageSize(n int) error {
	if n < 0 {
		return errors.New("page_size is negative; 0 is no bound")
	}
	return nil
}

func assign[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (set *settings) setClock(a AccountSettings) error {
	if a.ClockOffsetMS != nil {
		set.offset = time.Duration(*a.ClockOffsetMS) * time.Millisecond
	}
	if a.CounterLagMS != nil {
		if *a.CounterLagMS < 0 || *a.CounterLagMS > 3_600_000 {
			return errors.New("counter_lag_ms is not between 0 and 3600000")
		}
		set.lag = time.Duration(*a.CounterLagMS) * time.Millisecond
	}
	if a.TimeZone == "" {
		return nil
	}
	zone, err := time.LoadLocation(a.TimeZone)
	if err != nil || a.TimeZone == "Local" {
		return fmt.Errorf("time_zone %q is not an IANA time zone", a.TimeZone)
	}
	set.zone = zone
	return nil
}

func (set *settings) setLimits(limits map[string]map[int]int64) error {
	// "*" goes first, so that a named operation wins over it.
	if err := set.setLimitsOf("*", limits["*"]); err != nil {
		return err
	}
	for name, windows := range limits {
		if name == "*" {
			continue
		}
		if err := set.setLimitsOf(name, windows); err != nil {
			return err
		}
	}
	return nil
}

func (set *settings) setLimitsOf(name string, windows map[int]int64) error {
	named, ok := operationNamed(name)
	if name != "*" && (!ok || !named.metered()) {
		return fmt.Errorf("limits: %q is not one of %v", name, operationNames[:metered])
	}
	for seconds, limit := range windows {
		at := slices.Index(spans[:], seconds)
		if at < 0 {
			return fmt.Errorf("limits of %s: %d is not one of the windows %v", name, seconds, spans)
		}
		if limit < 0 {
			return fmt.Errorf("limits of %s: the limit of %d seconds is negative; 0 is no limit", name, seconds)
		}
		for op := range set.limits {
			if name == "*" || op == int(named) {
				set.limits[op][at] = limit
			}
		}
	}
	return nil
}

func (set *settings) setSpends(also map[string][]string) error {
	for name, others := range also {
		op, ok := operationNamed(name)
		if !ok {
			return fmt.Errorf("also_spends: %q is not one of %v", name, operationNames)
		}
		spends := slices.DeleteFunc([]operation{op}, func(o operation) bool { return !o.metered() })
		for _, other := range others {
			in, ok := operationNamed(other)
			if !ok || !in.metered() || slices.Contains(spends, in) {
				return fmt.Errorf("also_spends of %s: %q is not another one of %v", name, other,
					operationNames[:metered])
			}
			spends = append(spends, in)
		}
		set.spends[op] = spends
	}
	return nil
}

func (set *settings) setLatencies(latencies map[string]Range) error {
	for name, latency := range latencies {
		op, ok := operationNamed(name)
		if !ok {
			return fmt.Errorf("latency_by_operation: %q is not one of %v", name, operationNames)
		}
		if err := latency.check("latency of " + name); err != nil {
			return err
		}
		set.latencyOf[op] = &latency
	}
	return nil
}

func (set *settings) setRules(rules []Rule) error {
	if rules == nil {
		return nil
	}
	prepared := make([]Rule, 0, len(rules))
	for _, rule := range rules {
		ready, err := rule.prepared()
		if err != nil {
			return err
		}
		prepared = append(prepared, ready)
	}
	set.rules, set.fields = prepared, ruleFields(prepared)
	return nil
}

func checkLists(lists []string) error {
	for _, name := range lists {
		if err := checkName("list", name); err != nil {
			return err
		}
	}
	return nil
}

// latencyFor is the range of the time to an answer of this operation.
func (set *settings) latencyFor(op operation) Range {
	if own := set.latencyOf[op]; own != nil {
		return *own
	}
	return set.latency
}

// shown returns the settings in the form in which they can be set.
func (set *settings) shown() AccountSettings {
	offset, lag := set.offset.Milliseconds(), set.lag.Milliseconds()
	a := AccountSettings{
		Name: set.name, TimeZone: set.zone.String(), ClockOffsetMS: &offset, CounterLagMS: &lag,
		Limits: map[string]map[int]int64{}, Latency: &set.latency, LatencyByOperation: map[string]Range{},
		AlsoSpends:     map[string][]string{},
		ImportDuration: &set.importDuration, Suspended: &set.suspended, RetryAfter: &set.retryAfter,
		CountsRefused: &set.countsRefused,
		StrictLists:   &set.strictLists, ExclusiveImports: &set.exclusive, Digest: set.digest, Rules: set.rules,
	}
	for op, limits := range set.limits {
		a.Limits[operationNames[op]] = map[int]int64{spans[0]: limits[0], spans[1]: limits[1], spans[2]: limits[2]}
	}
	for op, spends := range set.spends {
		for _, other := range spends {
			if other != operation(op) {
				a.AlsoSpends[operationNames[op]] = append(a.AlsoSpends[operationNames[op]], other.String())
			}
		}
	}
	for op, latency := range set.latencyOf {
		if latency != nil {
			a.LatencyByOperation[operationNames[op]] = *latency
		}
	}
	return a
}
