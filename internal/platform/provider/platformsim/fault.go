package platformsim

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"
)

// Fault makes calls go wrong.
type Fault struct {
	// Kind is one of FaultKinds.
	Kind string `json:"fault"`
	// Action chooses the calls: the id of an action, or method and path of a request that is none; empty for those of
	// all actions.
	Action string `json:"action,omitempty"`
	// Skip lets so many chosen calls pass first, Count is how often the fault strikes: 0 means once, or without end
	// where there is a probability.
	Skip  int `json:"skip,omitempty"`
	Count int `json:"count,omitempty"`
	// Probability is that of striking a chosen call; 0 means always.
	Probability float64 `json:"probability,omitempty"`
	// Accept has the work done before the fault strikes.
	Accept bool `json:"accept,omitempty"`
	// MS is how long hang holds (0: until the client leaves) and how much later slow answers.
	MS int64 `json:"ms,omitempty"`
	// Status is that of status (default 503), RetryAfter is what over_limit says (seconds, default 1).
	Status     int `json:"status,omitempty"`
	RetryAfter int `json:"retry_after,omitempty"`
	// Code and Message are what refuse answers with.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// FaultKinds are the kinds of faults: cut ends the connection without an answer, hang holds it, status answers an HTML
// page with a status, slow answers late, truncated sends half an answer, garbage an answer that is no JSON, over_limit
// refuses as if a limit were reached, and refuse with a code of the platform. truncated, garbage and slow strike what
// was accepted, over_limit and refuse what was not.
//
// job_failed strikes a request that begins a job: it fails, before its work or, with accept, after half of it.
var FaultKinds = []string{"cut", "hang", "status", "slow", "truncated", "garbage", "over_limit", "refuse", "job_failed"}

const longestHang = 10 * time.Minute

func (f *Fault) check() error {
	if !slices.Contains(FaultKinds, f.Kind) {
		return fmt.Errorf("fault %q is not one of %v", f.Kind, FaultKinds)
	}
	if f.Skip < 0 || f.Count < 0 || f.RetryAfter < 0 || f.MS < 0 || f.MS > longestHang.Milliseconds() ||
		!(f.Probability >= 0 && f.Probability <= 1) {
		return fmt.Errorf("skip, count, ms and retry_after must not be negative, ms at most %d, "+
			"and probability from 0 to 1", longestHang.Milliseconds())
	}
	if f.Status == 0 {
		f.Status = http.StatusServiceUnavailable
	}
	if f.Status < 300 || f.Status > 599 {
		return fmt.Errorf("status is %d; it must be from 300 to 599", f.Status)
	}
	if (f.Code != "") != (f.Kind == "refuse") {
		return errors.New("refuse needs a code, and no other fault has one")
	}
	if f.Count == 0 && f.Probability == 0 {
		f.Count = 1
	}
	if f.RetryAfter == 0 {
		f.RetryAfter = 1
	}
	return nil
}

// When faults strike: before the work is done, after it, or in it.
const (
	strikesBefore = iota
	strikesAfter
	strikesJob
)

func (f *Fault) strikes() int {
	switch {
	case f.Kind == "job_failed":
		return strikesJob
	case f.Accept, f.Kind == "truncated", f.Kind == "garbage", f.Kind == "slow":
		return strikesAfter
	}
	return strikesBefore
}

// take returns the fault that strikes the call now; nil for none.
func (c *call) take(now int) *Fault {
	name, s := c.name(), c.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.strikes() != now || f.Action != name && (f.Action != "" || c.route.action == nil) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Probability > 0 && s.random.Float64() >= f.Probability {
			continue
		}
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		s.log.totals.Struck[f.Kind]++
		return f
	}
	return nil
}

// struck applies a fault to a call of which nothing is done.
func (c *call) struck() bool {
	f := c.take(strikesBefore)
	if f == nil {
		return false
	}
	if f.Kind == "refuse" {
		c.refuse(answerInvalid, problem{f.Code, f.Message})
		return true
	}
	if f.Kind == "over_limit" {
		c.limited(&spent{Name: "of a fault", RetryAfter: f.RetryAfter})
		return true
	}
	c.strike(f)
	return true
}

// struckAfter spoils the answer of a call that was accepted.
func (c *call) struckAfter(a reply) bool {
	f := c.take(strikesAfter)
	if f == nil {
		return false
	}
	switch f.Kind {
	case "slow":
		if c.sim.wait(time.Duration(f.MS)*time.Millisecond, c.r.Context().Done()) {
			a.write(c.w)
		}
	case "truncated":
		a.headers["Connection"] = "close"
		a.head(c.w)
		_, _ = c.w.Write(a.body[:len(a.body)/2])
		_ = http.NewResponseController(c.w).Flush()
		panic(http.ErrAbortHandler)
	case "garbage":
		a.body = []byte("{\"id\": \x00\xff<junk>")
		a.write(c.w)
	default:
		c.strike(f)
	}
	return true
}

func (c *call) strike(f *Fault) {
	switch f.Kind {
	case "hang":
		hold := time.Duration(f.MS) * time.Millisecond
		if hold == 0 {
			hold = longestHang
		}
		c.sim.wait(hold, c.r.Context().Done())
		c.cut()
	case "status":
		page := fmt.Sprintf("<html><head><title>%d</title></head><body><h1>%d %s</h1></body></html>\n", f.Status,
			f.Status, http.StatusText(f.Status))
		reply{status: f.Status, media: "text/html", body: []byte(page)}.write(c.w)
	default:
		c.cut()
	}
}

// cut ends the connection by a reset, so that the client cannot miss it.
func (c *call) cut() {
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
