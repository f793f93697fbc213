package platformsim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"flowlane/internal/expr"
)

// mostItems is how many accepted requests of an action are remembered for lists.
const mostItems = 1000

// ledger is what arrived.
type ledger struct {
	totals   Totals
	arrivals []*Arrival
	byKey    map[string]*Arrival
	jobs     map[string]*job
	keys     map[string]before
	items    map[string][]json.RawMessage
	records  int
}

func newLedger() ledger {
	return ledger{
		totals: Totals{Accepted: map[string]int{}, Refused: map[string]int{}, Limited: map[string]int{},
			Struck: map[string]int{}},
		byKey: map[string]*Arrival{}, jobs: map[string]*job{}, keys: map[string]before{},
		items: map[string][]json.RawMessage{},
	}
}

// Totals counts requests by what became of them.
type Totals struct {
	// Accepted and Limited are by action, or method and path of what is none; Refused is by the name of the answer,
	// Struck by the kind of fault.
	Accepted map[string]int `json:"accepted"`
	Refused  map[string]int `json:"refused"`
	Limited  map[string]int `json:"limited"`
	Struck   map[string]int `json:"struck"`
	// Replayed were answered as an earlier request with their idempotency key.
	Replayed     int `json:"replayed"`
	BrokenBodies int `json:"broken_bodies"`
	// Undocumented says what the vendor's document does not know of the simulator's own answers.
	Undocumented []string `json:"undocumented"`
	// Mistakes are of the simulator's own templates.
	Mistakes []string `json:"mistakes"`
}

func (t Totals) clone() Totals {
	t.Accepted, t.Refused = maps.Clone(t.Accepted), maps.Clone(t.Refused)
	t.Limited, t.Struck = maps.Clone(t.Limited), maps.Clone(t.Struck)
	t.Undocumented, t.Mistakes = slices.Clone(t.Undocumented), slices.Clone(t.Mistakes)
	return t
}

// Arrival says how often a key arrived in accepted calls of an action, and whether it was rejected the last time.
type Arrival struct {
	Action   string `json:"action"`
	Key      string `json:"key"`
	Arrivals int    `json:"arrivals"`
	Rejected bool   `json:"rejected"`
}

// before is a request with an idempotency key, and its answer.
type before struct {
	print string
	reply reply
}

// job is an accepted call that can be asked about later.
type job struct {
	ID       string   `json:"id"`
	Action   string   `json:"action"`
	At       string   `json:"at"`
	Polls    int      `json:"polls"`
	Accepted []record `json:"accepted"`
	Rejected []record `json:"rejected"`
	// State is what its requests made of it, Failed that a fault ended it before it came to the Unprocessed records.
	State       string   `json:"state"`
	Failed      bool     `json:"failed"`
	Unprocessed []record `json:"unprocessed"`

	credential string
}

// fail ends the job without its work, or after half of it.
func (j *job) fail(half bool) {
	count := len(j.Accepted) + len(j.Rejected)
	done := 0
	if half {
		done = count / 2
	}
	j.Failed = true
	rest := func(r record) bool { return r.Index >= done }
	for _, r := range slices.Concat(j.Accepted, j.Rejected) {
		if rest(r) {
			j.Unprocessed = append(j.Unprocessed, r)
		}
	}
	j.Accepted, j.Rejected = slices.DeleteFunc(j.Accepted, rest), slices.DeleteFunc(j.Rejected, rest)
}

// jobPolls is how often a job is asked about until it is done.
const jobPolls = 2

// openJobs counts the jobs of actions that are not done.
func (l *ledger) openJobs(credential string, actions []string) (n int) {
	for _, j := range l.jobs {
		if j.credential == credential && j.Polls < jobPolls && slices.Contains(actions, j.Action) {
			n++
		}
	}
	return n
}

// record is one of an accepted call.
type record struct {
	Index   int             `json:"index"`
	Key     string          `json:"key"`
	Record  json.RawMessage `json:"record"`
	ID      string          `json:"id"`
	Code    string          `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Rule rejects records: those whose field (a path with dots) has a value, or every nth that arrives.
type Rule struct {
	Action   string `json:"action,omitempty"`
	Field    string `json:"field,omitempty"`
	Equals   string `json:"equals,omitempty"`
	EveryNth int    `json:"every_nth,omitempty"`
	Code     string `json:"code,omitempty"`
	Message  string `json:"message,omitempty"`
}

func (r *Rule) rejects(action string, raw json.RawMessage, n int) bool {
	if r.Action != "" && r.Action != action {
		return false
	}
	if r.EveryNth > 0 {
		return n%r.EveryNth == 0
	}
	return gjson.GetBytes(raw, r.Field).String() == r.Equals
}

// start makes the vars of a call.
func (c *call) start() {
	s := c.sim
	s.mu.Lock()
	s.lastID++
	n := s.lastID
	s.mu.Unlock()
	now := s.clock().UTC()
	scheme := "http"
	if c.r.TLS != nil {
		scheme = "https"
	}
	c.vars = map[string]any{
		"n": n, "id": idOf("call", n), "now": now.Format(time.RFC3339), "epoch": now.Unix(),
		"rfc1123": now.Format(time.RFC1123Z),
		"self":    scheme + "://" + c.r.Host, "credential": c.credential, "account": idOf("account "+c.credential,
			0)[:12],
		"message": "", "code": "", "accepted": []record{}, "rejected": []record{}, "items": []json.RawMessage{},
	}
}

// idOf makes 32 hexadecimal digits that are always the same for the same number.
func idOf(kind string, n uint64) string {
	sum := sha256.Sum256([]byte(kind + strconv.FormatUint(n, 10)))
	return hex.EncodeToString(sum[:16])
}

func (c *call) env() *expr.Env {
	vars, err := json.Marshal(c.vars)
	if err != nil {
		c.mistake("vars", err)
	}
	return &expr.Env{Input: c.input, Vars: vars}
}

// name is what the call is counted under.
func (c *call) name() string {
	if c.route == nil {
		return c.r.Method + " " + c.r.URL.Path
	}
	if c.route.Action != "" {
		return c.route.Action
	}
	return c.route.Method + " " + c.route.Path
}

// rows are the records of a request: those of a bulk call, else the request itself.
func (c *call) rows() []json.RawMessage {
	env := c.env()
	var list gjson.Result
	switch {
	case c.route.records != nil:
		raw, err := c.route.records.Append(nil, env)
		if err != nil {
			c.mistake("records", err)
		}
		list = gjson.ParseBytes(raw)
	case c.route.action != nil && c.route.action.Call.Records != nil:
		list = c.route.sent(c.body)
	default:
		return []json.RawMessage{json.RawMessage(gjson.GetBytes(c.input, "body").Raw)}
	}
	var out []json.RawMessage
	list.ForEach(func(_, item gjson.Result) bool {
		out = append(out, json.RawMessage(item.Raw))
		return true
	})
	return out
}

func (c *call) bulk() bool {
	return c.route.records != nil || c.route.action != nil && c.route.action.Call.Records != nil
}

// keyOf is what a record is counted under: what the profile says, else its email, its id, or all of it.
func (c *call) keyOf(env *expr.Env, raw json.RawMessage) string {
	if c.route.key != nil {
		with := *env
		with.Item = raw
		text, err := c.route.key.Append(nil, &with)
		if err != nil {
			c.mistake("key", err)
		}
		return gjson.ParseBytes(text).String()
	}
	for _, name := range []string{"email", "id"} {
		if v := gjson.GetBytes(raw, name); v.Exists() {
			return v.String()
		}
	}
	return string(raw)
}

// accept notes what arrived and judges each record by the rules. It returns the answer to give.
func (c *call) accept() (name string, why problem) {
	env, rows, action := c.env(), c.rows(), c.name()
	state := c.text("state", c.route.state)
	var failure *Fault
	if c.route.Begins {
		failure = c.take(strikesJob)
	}
	keys := make([]string, len(rows))
	for i, raw := range rows {
		keys[i] = c.keyOf(env, raw)
	}
	s := c.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &job{ID: c.vars["id"].(string), Action: action, At: c.vars["now"].(string), Accepted: []record{},
		Rejected: []record{}, Unprocessed: []record{}, State: state, credential: c.credential}
	for i, raw := range rows {
		s.log.records++
		r := record{Index: i, Key: keys[i], Record: raw, ID: idOf(action+" "+keys[i], 0)}
		for _, rule := range s.rules {
			if rule.rejects(action, raw, s.log.records) {
				r.Code, r.Message = rule.Code, rule.Message
				if r.Code == "" {
					r.Code = "INVALID"
				}
				if r.Message == "" {
					r.Message = "The record was rejected."
				}
				j.Rejected = append(j.Rejected, r)
				break
			}
		}
		if r.Code == "" {
			j.Accepted = append(j.Accepted, r)
		}
	}
	c.vars["accepted"], c.vars["rejected"] = j.Accepted, j.Rejected
	if len(j.Rejected) > 0 && (!c.bulk() || c.route.AllOrNothing) {
		first := j.Rejected[0]
		return answerRejected, problem{first.Code, first.Message}
	}
	if !c.route.Fills {
		s.log.arrived(j)
	}
	s.log.totals.Accepted[action]++
	if c.job != nil && state != "" {
		c.advance(s.log.jobs[c.job.ID], j, failure)
	} else if c.route.Method != http.MethodGet {
		s.log.jobs[j.ID] = j
		kept := append([]json.RawMessage{c.seen(j.ID)}, s.log.items[action]...)
		s.log.items[action] = kept[:min(len(kept), mostItems)]
	}
	if c.route.Of != "" {
		c.vars["items"] = append([]json.RawMessage{}, s.log.items[c.route.Of]...)
	}
	return answerSuccess, problem{}
}

// advance has a request move on the job that it is about.
func (c *call) advance(about, j *job, failure *Fault) {
	about.State, about.Polls = j.State, 0
	if c.route.Fills {
		about.Action, about.Accepted, about.Rejected = j.Action, j.Accepted, j.Rejected
	}
	if c.route.Begins {
		if failure != nil {
			about.fail(failure.Accept)
		}
		c.sim.log.arrived(about)
	}
}

// arrived notes the records of a job.
func (l *ledger) arrived(j *job) {
	for _, r := range slices.Concat(j.Accepted, j.Rejected) {
		l.note(j.Action, r.Key, r.Code != "")
	}
}

// seen is an accepted request as lists show it.
func (c *call) seen(id string) json.RawMessage {
	text, _ := json.Marshal(map[string]any{ // of texts that are JSON
		"id": id, "at": c.vars["now"], "rfc1123": c.vars["rfc1123"], "body": json.RawMessage(gjson.GetBytes(c.input,
			"body").Raw),
	})
	return text
}

func (l *ledger) note(action, key string, rejected bool) {
	a := l.byKey[action+" "+key]
	if a == nil {
		a = &Arrival{Action: action, Key: key}
		l.byKey[action+" "+key] = a
		l.arrivals = append(l.arrivals, a)
	}
	a.Arrivals++
	a.Rejected = rejected
}

// findJob puts the call that the request asks about into vars.job.
func (c *call) findJob() bool {
	id := c.text("job", c.route.job)
	c.sim.mu.Lock()
	defer c.sim.mu.Unlock()
	j := c.sim.log.jobs[strings.ToLower(id)]
	if j == nil {
		return false
	}
	j.Polls++
	found := *j
	c.job, c.vars["job"] = &found, found
	return true
}

// text renders a template of a text; empty for none.
func (c *call) text(where string, t *expr.Template) string {
	if t == nil {
		return ""
	}
	raw, err := t.Append(nil, c.env())
	if err != nil {
		c.mistake(where, err)
	}
	return gjson.ParseBytes(raw).String()
}

func (c *call) mistake(where string, err error) {
	c.count(func(l *ledger) { l.totals.Mistakes = append(l.totals.Mistakes, c.name()+": "+where+": "+err.Error()) })
}
