// Package dialersim is a contact-centre platform that meters its customers, simulated over real HTTP: accounts, calling
// lists, bulk uploads with row results, asynchronous imports, counters by operation type with windows aligned to the
// account's clock, refusals, and faults on demand.
//
// It promises that a call counts exactly when it is accepted, that a body which ends early leaves nothing behind, and
// that every record that arrived can be asked for later with how often it did. It knows nothing of the service that
// calls it. Everything is in memory and lost when the process ends.
//
// It ships with the program: `flowlane sim` and `flowlane dev` serve it to whoever tries a flow.
package dialersim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	_ "time/tzdata" // accounts live in time zones that the host may not know
)

// Options configures a simulator; the zero value is complete.
type Options struct {
	// Clock is the time of accounts without a clock offset; default time.Now. Latencies pass in real time whatever it
	// says.
	Clock func() time.Time
	// Seed makes latencies and probabilities repeatable.
	Seed uint64
	// KeepWindows has Windows tell of windows that are over, too.
	KeepWindows bool
}

// Sim is the simulated platform; it is an http.Handler and safe for concurrent use.
type Sim struct {
	clock  func() time.Time
	keeps  bool
	mux    *http.ServeMux
	closed chan struct{}
	close  sync.Once
	faults faultQueue
	// epoch tells the import ids of one simulator from those of another.
	epoch  string
	nextID atomic.Uint64

	mu       sync.RWMutex
	accounts map[string]*account // the one without a name is that of the plain endpoints

	randomMu sync.Mutex
	random   *rand.Rand

	recordBytes       atomic.Int64
	unauthorized      atomic.Int64
	brokenBodies      atomic.Int64
	redirectsFollowed atomic.Int64
	callbacks         atomic.Int64
	callbacksFailed   atomic.Int64
}

// New returns a simulator without accounts; an account comes into being when it is first used.
func New(o Options) *Sim {
	s := &Sim{
		clock: o.Clock, keeps: o.KeepWindows, closed: make(chan struct{}),
		accounts: map[string]*account{}, random: rand.New(rand.NewPCG(o.Seed, 1)),
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	s.faults = faultQueue{fired: map[string]int64{}, random: rand.New(rand.NewPCG(o.Seed, 2))}
	s.epoch = strconv.FormatInt(s.clock().UnixMicro(), 36)
	s.mux = s.routes()
	return s
}

// Close ends what waits: hanging answers, latencies and pending callbacks. Serve nothing afterwards.
func (s *Sim) Close() { s.close.Do(func() { close(s.closed) }) }

// ServeHTTP answers the platform's operations, the plain endpoints and, for loopback clients, control.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Sim) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, route := range map[string]struct {
		op     operation
		handle func(*call)
	}{
		"GET /whoami":                     {opWhoami, (*call).whoami},
		"GET /counters":                   {opCounters, (*call).counters},
		"POST /lists/{list}/upload":       {opUpload, (*call).upload},
		"POST /lists/{list}/upload-async": {opUploadAsync, (*call).uploadAsync},
		"GET /imports/{import}":           {opQuery, (*call).readImport},
		"GET /lists/{list}/imports":       {opQuery, (*call).listImports},
		"PUT /lists/{list}/records/{key}": {opModify, (*call).putRecord},
		"GET /lists/{list}/records/{key}": {opQuery, (*call).getRecord},
		"POST /calls":                     {opDial, (*call).dial},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if c := s.begin(w, r, route.op); c != nil {
				route.handle(c)
			}
		})
	}
	for pattern, handle := range map[string]func(*call){
		"GET /echo": (*call).echo, "POST /echo": (*call).echo, "POST /work": (*call).work,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if c := s.beginPlain(w, r); c != nil {
				handle(c)
			}
		})
	}
	mux.Handle("/_control/", s.control())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeFault(w, http.StatusNotFound, refusal{Fault: "not_found",
			Message: fmt.Sprintf("There is no operation %s %s.", r.Method, r.URL.Path)})
	})
	return mux
}

// everyAccount returns the accounts in order of name.
func (s *Sim) everyAccount() []*account {
	var all []*account
	s.mu.RLock()
	for _, a := range s.accounts {
		all = append(all, a)
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *account) int { return cmp.Compare(a.name, b.name) })
	return all
}

// randomBelow draws a number from 0 to n-1.
func (s *Sim) randomBelow(n int64) int64 {
	s.randomMu.Lock()
	defer s.randomMu.Unlock()
	return s.random.Int64N(n)
}

// wait passes time, until it is over or one of these closes; it says whether the time is over.
func (s *Sim) wait(d time.Duration, gone <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-gone:
		return false
	case <-s.closed:
		return false
	}
}

// now is the account's time.
func (s *Sim) now(set *settings) time.Time { return s.clock().Add(set.offset) }

// newID returns an id that no other id of this or another simulator equals.
func (s *Sim) newID(kind string) string {
	return fmt.Sprintf("%s-%s-%06d", kind, s.epoch, s.nextID.Add(1))
}
