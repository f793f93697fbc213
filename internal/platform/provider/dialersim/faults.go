package dialersim

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Fault makes calls go wrong.
type Fault struct {
	// Kind is one of FaultKinds.
	Kind string `json:"fault"`
	// Account and Operation choose the calls; empty means every account, and every metered operation. The operations
	// whoami, counters and http are struck only when they are named.
	Account   string `json:"account,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Skip lets so many chosen calls pass first.
	Skip int `json:"skip,omitempty"`
	// Count is how often the fault strikes; 0 means once, or without end when there is a probability.
	Count int `json:"count,omitempty"`
	// Probability is that of striking a chosen call; 0 means always.
	Probability float64 `json:"probability,omitempty"`
	// Accept has the work done before the fault strikes (hang, status, redirect_307).
	Accept bool `json:"accept,omitempty"`
	// MS is how long hang holds (0: until the client leaves, at most ten minutes), and over how long slow_body is
	// spread.
	MS int64 `json:"ms,omitempty"`
	// Status is the status of status; default 503.
	Status int `json:"status,omitempty"`
	// AfterBytes is how much of the body cut_before reads first.
	AfterBytes int64 `json:"after_bytes,omitempty"`
	// Graceful ends a cut connection in order instead of by a reset.
	Graceful bool `json:"graceful,omitempty"`
	// OperationType, WindowSeconds and RetryAfter (seconds) are what over_limit says; default: the call's own type, 60,
	// none.
	OperationType string `json:"operation_type,omitempty"`
	WindowSeconds int    `json:"window_seconds,omitempty"`
	RetryAfter    int    `json:"retry_after,omitempty"`
}

// FaultKinds are the kinds of faults. cut_before cuts the connection and over_limit answers 429, both with nothing
// done; cut_after_accept, slow_body, truncated_body and garbage_body spoil the answer of an accepted call; hang, status
// and redirect_307 do either.
var FaultKinds = []string{
	"cut_before", "cut_after_accept", "hang", "status", "over_limit", "redirect_307", "slow_body", "truncated_body",
	"garbage_body",
}

const (
	redirectMark = "redirected=1"
	longestHang  = 10 * time.Minute
)

// check says what is wrong with a fault, and fills in its defaults.
func (f *Fault) check() error {
	if !slices.Contains(FaultKinds, f.Kind) {
		return fmt.Errorf("fault %q is not one of %v", f.Kind, FaultKinds)
	}
	if _, ok := operationNamed(f.Operation); !ok && f.Operation != "" {
		return fmt.Errorf("operation %q is not one of %v", f.Operation, operationNames)
	}
	if !(f.Probability >= 0 && f.Probability <= 1) {
		return fmt.Errorf("probability is not between 0 and 1")
	}
	if min(int64(f.Skip), int64(f.Count), f.MS, f.AfterBytes, int64(f.RetryAfter)) < 0 || f.MS > maxRangeMS {
		return fmt.Errorf("skip, count, ms, after_bytes and retry_after must not be negative, and ms at most %d",
			maxRangeMS)
	}
	if f.Status == 0 {
		f.Status = http.StatusServiceUnavailable
	}
	if f.Status < 300 || f.Status > 599 {
		return fmt.Errorf("status is not between 300 and 599")
	}
	if f.WindowSeconds == 0 {
		f.WindowSeconds = spans[0]
	}
	if f.Count == 0 && f.Probability == 0 {
		f.Count = 1
	}
	return nil
}

// accepts says whether the fault strikes after acceptance.
func (f *Fault) accepts() bool {
	switch f.Kind {
	case "cut_before", "over_limit":
		return false
	case "hang", "status", "redirect_307":
		return f.Accept
	}
	return true
}

// chooses says whether the fault is meant for a call.
func (f *Fault) chooses(account string, op operation) bool {
	if f.Account != "" && f.Account != account {
		return false
	}
	return f.Operation == op.String() || f.Operation == "" && op.metered()
}

// faultQueue holds the faults that wait to strike; the first that fits a call strikes it.
type faultQueue struct {
	waiting atomic.Int32 // so that calls without faults take no lock
	mu      sync.Mutex
	queue   []*Fault
	random  *rand.Rand
	fired   map[string]int64
}

func (q *faultQueue) add(f Fault) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, &f)
	q.waiting.Store(int32(len(q.queue)))
}

func (q *faultQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = nil
	q.waiting.Store(0)
}

func (q *faultQueue) list() []Fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]Fault, 0, len(q.queue))
	for _, f := range q.queue {
		all = append(all, *f)
	}
	return all
}

// take returns the fault that strikes this call now, or nil.
func (q *faultQueue) take(account string, op operation, accepted bool) *Fault {
	if q.waiting.Load() == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, f := range q.queue {
		if f.accepts() != accepted || !f.chooses(account, op) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Probability > 0 && q.random.Float64() >= f.Probability {
			continue
		}
		q.fired[f.Kind]++
		struck := *f
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				q.queue = slices.Delete(q.queue, i, i+1)
				q.waiting.Store(int32(len(q.queue)))
			}
		}
		return &struck
	}
	return nil
}

// strikeBefore ends a call of which nothing is done. The answering faults read the body first, as a gateway would.
func (c *call) strikeBefore(f *Fault) {
	if f.Kind == "cut_before" {
		s := &scratch{}
		for left := f.AfterBytes; left > 0; {
			if len(s.body) == 0 {
				s.body = make([]byte, 32<<10)
			}
			n, err := c.r.Body.Read(s.body[:min(left, int64(len(s.body)))])
			if left -= int64(n); err != nil {
				break
			}
		}
		c.cut(f.Graceful)
		return
	}
	s := scratchFor(c.r.ContentLength)
	_, err := s.read(c.r, maxBody)
	s.release()
	if err != nil {
		c.sim.brokenBodies.Add(1)
		panic(http.ErrAbortHandler)
	}
	if f.Kind == "over_limit" {
		c.strikeOverLimit(f)
		return
	}
	c.strikeEither(f)
}

func (c *call) strikeOverLimit(f *Fault) {
	op := f.OperationType
	if op == "" {
		op = c.op.String()
	}
	if f.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	var limit int64
	named, ok := operationNamed(op)
	if at := slices.Index(spans[:], f.WindowSeconds); ok && named.metered() && at >= 0 {
		limit = c.set.limits[named][at]
	}
	writeFault(c.w, http.StatusTooManyRequests, limitRefusal(op, f.WindowSeconds, limit))
}

// strikeEither applies the faults that strike before or after acceptance.
func (c *call) strikeEither(f *Fault) {
	switch f.Kind {
	case "hang":
		hold := time.Duration(f.MS) * time.Millisecond
		if hold == 0 {
			hold = longestHang
		}
		c.sim.wait(hold, c.r.Context().Done())
		c.cut(f.Graceful)
	case "status":
		writeHTML(c.w, f.Status)
	case "redirect_307":
		to := *c.r.URL
		if to.RawQuery != "" {
			to.RawQuery += "&"
		}
		to.RawQuery += redirectMark
		c.w.Header().Set("Location", to.RequestURI())
		writeHTML(c.w, http.StatusTemporaryRedirect)
	}
}

// strikeAfter spoils the answer of an accepted call.
func (c *call) strikeAfter(f *Fault, status int, body []byte) {
	switch f.Kind {
	case "cut_after_accept":
		c.cut(f.Graceful)
	case "slow_body":
		c.dribble(f, status, body)
	case "truncated_body":
		writeHead(c.w, status, len(body))
		_, _ = c.w.Write(body[:len(body)/2])
		_ = http.NewResponseController(c.w).Flush()
		panic(http.ErrAbortHandler)
	case "garbage_body":
		writeJSON(c.w, http.StatusOK, []byte("{\"import_id\": \x00\xff\xfe<junk>"))
	default:
		c.strikeEither(f)
	}
}

// dribble sends the answer in small pieces, spread over the fault's time; default one second.
func (c *call) dribble(f *Fault, status int, body []byte) {
	const pieces = 20
	spread := time.Duration(f.MS) * time.Millisecond
	if spread == 0 {
		spread = time.Second
	}
	writeHead(c.w, status, len(body))
	for i := range pieces {
		if !c.sim.wait(spread/pieces, c.r.Context().Done()) {
			panic(http.ErrAbortHandler)
		}
		_, _ = c.w.Write(body[i*len(body)/pieces : (i+1)*len(body)/pieces])
		_ = http.NewResponseController(c.w).Flush()
	}
}

// cut ends the connection without an answer: by a reset, so that the client cannot miss it, or in order.
func (c *call) cut(graceful bool) {
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && !graceful {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func writeHead(w http.ResponseWriter, status, size int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
}

// writeHTML answers as a gateway in front of the platform does.
func writeHTML(w http.ResponseWriter, status int) {
	text := http.StatusText(status)
	page := fmt.Sprintf("<html><head><title>%d %s</title></head><body><h1>%d %s</h1><hr>gateway</body></html>\n",
		status, text, status, text)
	w.Header().Set("Content-Type", "text/html")
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(page))
}
