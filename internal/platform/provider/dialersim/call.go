package dialersim

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// call is one request on its way: begin has authenticated it, then it is refused or accepted, once.
type call struct {
	sim  *Sim
	w    http.ResponseWriter
	r    *http.Request
	op   operation
	acct *account
	user string
	set  *settings
	// now is the account's time at which the call was accepted; set by spend.
	now time.Time
}

// refusal is the body of every 4xx answer.
type refusal struct {
	Fault         string `json:"fault"`
	Message       string `json:"message"`
	OperationType string `json:"operation_type,omitempty"`
	WindowSeconds int    `json:"window_seconds,omitempty"`
	Limit         int64  `json:"limit,omitempty"`
}

// begin authenticates a request and lets the faults before acceptance loose on it; nil when it is already answered.
func (s *Sim) begin(w http.ResponseWriter, r *http.Request, op operation) *call {
	username, password, ok := r.BasicAuth()
	name, user, split := strings.Cut(username, "/")
	if !split {
		user = name
	}
	var acct *account
	if ok && password != "" && checkName("account", name) == nil {
		acct = s.account(name)
	}
	if acct == nil || !acct.admits(password) {
		s.unauthorized.Add(1)
		w.Header().Set("WWW-Authenticate", `Basic realm="dialer"`)
		writeFault(w, http.StatusUnauthorized, refusal{Fault: "unauthorized",
			Message: "The account or the password is wrong."})
		return nil
	}
	c := &call{sim: s, w: w, r: r, op: op, acct: acct, user: user, set: acct.set.Load()}
	w.Header().Set("Date", s.now(c.set).UTC().Format(http.TimeFormat))
	if c.set.suspended {
		c.refuse(http.StatusForbidden, refusal{Fault: "account_suspended", Message: "The account " + name +
			" is suspended."})
		return nil
	}
	if !c.enter() {
		return nil
	}
	return c
}

// beginPlain starts a request of the plain endpoints, which have no account.
func (s *Sim) beginPlain(w http.ResponseWriter, r *http.Request) *call {
	acct := s.account("")
	c := &call{sim: s, w: w, r: r, op: opHTTP, acct: acct, set: acct.set.Load()}
	if !c.enter() {
		return nil
	}
	return c
}

func (a *account) admits(password string) bool {
	want := a.set.Load().password
	return want == "" || subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 1
}

// enter counts followed redirects and applies a fault that strikes before acceptance; false when the call is over.
func (c *call) enter() bool {
	if strings.Contains(c.r.URL.RawQuery, redirectMark) {
		c.sim.redirectsFollowed.Add(1)
	}
	if f := c.sim.faults.take(c.acct.name, c.op, false); f != nil {
		c.acct.totals[c.op].refused.Add(1)
		c.strikeBefore(f)
		return false
	}
	return true
}

// refuse answers a call that does not count, unless the account counts refusals.
func (c *call) refuse(status int, body refusal) {
	c.acct.totals[c.op].refused.Add(1)
	c.countRefused()
	c.sim.wait(c.latency(), c.r.Context().Done())
	writeFault(c.w, status, body)
}

// spend counts the call in its windows at the account's present time, or answers 429 and returns false.
func (c *call) spend() bool {
	c.now = c.sim.now(c.set)
	over, ok := c.acct.meter.take(c.set.spends[c.op], c.now, c.set)
	if ok {
		return true
	}
	c.acct.totals[c.op].overLimit.Add(1)
	c.countRefused()
	if c.set.retryAfter {
		c.w.Header().Set("Retry-After", strconv.FormatInt(ceilSeconds(over.wait), 10))
	}
	c.sim.wait(c.latency(), c.r.Context().Done())
	writeFault(c.w, http.StatusTooManyRequests, limitRefusal(over.op.String(), over.span, over.limit))
	return false
}

func (c *call) countRefused() {
	if c.set.countsRefused {
		c.acct.meter.count(c.set.spends[c.op], c.sim.now(c.set), c.set)
	}
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func limitRefusal(op string, span int, limit int64) refusal {
	return refusal{
		Fault: "operations_limit_exceeded", Message: "The limit of operations of this type is exceeded.",
		OperationType: op, WindowSeconds: span, Limit: limit,
	}
}

// accept counts the call as accepted, with so many records. What it does is done; the answer may still go wrong.
func (c *call) accept(records int) {
	t := &c.acct.totals[c.op]
	t.accepted.Add(1)
	t.records.Add(int64(records))
}

// answer sends the answer of an accepted call after its latency, unless a fault gets in between.
func (c *call) answer(status int, body []byte) {
	c.sim.wait(c.latency(), c.r.Context().Done())
	c.send(status, body)
}

// send is answer without latency.
func (c *call) send(status int, body []byte) {
	if f := c.sim.faults.take(c.acct.name, c.op, true); f != nil {
		c.strikeAfter(f, status, body)
		return
	}
	writeJSON(c.w, status, body)
}

func (c *call) latency() time.Duration { return c.set.latencyFor(c.op).pick(c.sim.randomBelow) }

// body reads the whole body into s, or answers and returns false.
func (c *call) body(s *scratch, limit int) ([]byte, bool) {
	body, err := s.read(c.r, limit)
	switch {
	case err == nil:
		return body, true
	case errors.Is(err, errTooLarge):
		c.w.Header().Set("Connection", "close")
		// Who still sends when the connection closes does not see the answer: what is a little too large is read.
		_, _ = io.CopyN(io.Discard, c.r.Body, 2*maxSmallBody)
		c.refuse(http.StatusRequestEntityTooLarge, refusal{
			Fault: "import_size_limit_exceeded", Message: "The body is larger than " + strconv.Itoa(limit) + " bytes.",
		})
	default:
		c.sim.brokenBodies.Add(1)
		panic(http.ErrAbortHandler) // the client is gone, or sends what is no HTTP
	}
	return nil, false
}

// invalid refuses a request that makes no sense.
func (c *call) invalid(reason string) {
	c.refuse(http.StatusBadRequest, refusal{Fault: "invalid_request", Message: "The request is invalid: " + reason +
		"."})
}

func (c *call) whoami() {
	if !c.spend() {
		return
	}
	c.accept(0)
	c.answerValue(http.StatusOK, map[string]string{
		"account_number": c.acct.name, "account_name": c.set.name, "user": c.user, "time_zone": c.set.zone.String(),
	})
}

func (c *call) counters() {
	if !c.spend() {
		return
	}
	c.accept(0)
	c.answerValue(http.StatusOK, struct {
		AsOf     time.Time `json:"as_of"`
		Counters []Counter `json:"counters"`
	}{c.now.UTC(), c.acct.meter.read(c.now, c.set, c.set.lag)})
}

func (c *call) answerValue(status int, value any) { c.answer(status, encode(value)) }

// encode returns JSON of a value that always has one.
func encode(value any) []byte {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return body
}

func writeFault(w http.ResponseWriter, status int, body refusal) { writeJSON(w, status, encode(body)) }

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left hears nothing
}
