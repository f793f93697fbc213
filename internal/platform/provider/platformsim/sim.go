// Package platformsim plays a platform of the catalog over real HTTP: it knows the requests by their method and path,
// asks for a credential, holds parameters and limits against what is known of the platform, answers in its form, and
// fails on demand. What is special about a platform stands in a profile, a file of data/ written from the vendor's own
// documents; one without a profile is played by its entry in the catalog alone. Where the vendor publishes an OpenAPI
// document, that has the last word on what is taken and what is answered.
//
// It promises that every record which arrived can be asked for with how often it did, and that a request which it
// refuses leaves nothing behind. It must not know the service that calls it: of the rest of the repository it reads the
// catalog's data and the language of its templates. Everything is in memory and lost when the process ends.
//
// It ships with the program: `flowlane sim --platform` serves it to whoever tries a flow without an account there.
package platformsim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"flowlane/internal/platform/catalog"
)

// maxBody is how much of a request is read.
const maxBody = 64 << 20

// Options configures a simulator; the zero value is complete.
type Options struct {
	// Clock is the time of the platform; default time.Now.
	Clock func() time.Time
	// Seed makes chances repeatable.
	Seed uint64
	// Document is the vendor's OpenAPI document; nil for none.
	Document []byte
}

// Sim is one simulated platform; it is an http.Handler and safe for concurrent use.
type Sim struct {
	clock    func() time.Time
	platform *catalog.Platform
	profile  *profile
	routes   []*route
	document *document
	control  http.Handler
	closed   chan struct{}
	close    sync.Once

	mu     sync.Mutex // of everything below
	random *rand.Rand
	faults []*Fault
	rules  []Rule
	log    ledger
	meter  meter
	lastID uint64
}

// New returns a simulator of a platform. An error says what is wrong with the profile or the document.
func New(cat *catalog.Catalog, platformID string, o Options) (*Sim, error) {
	p, ok := cat.Platform(platformID)
	if !ok {
		return nil, fmt.Errorf("there is no platform %q in the catalog", platformID)
	}
	s := &Sim{
		clock: o.Clock, platform: p, closed: make(chan struct{}),
		random: rand.New(rand.NewPCG(o.Seed, 1)), //nolint:gosec // chances that repeat
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	var err error
	if s.profile, err = profileOf(platformID); err != nil {
		return nil, err
	}
	if s.routes, err = routesOf(p, s.profile); err != nil {
		return nil, err
	}
	if len(o.Document) > 0 {
		if s.document, err = readDocument(o.Document, s.profile.DocumentBase); err != nil {
			return nil, fmt.Errorf("the document of platform %s: %w", platformID, err)
		}
	}
	s.control = s.controls()
	s.forget()
	return s, nil
}

// BaseURL is what stands in place of the platform's own base URL where the simulator answers at this address.
func (s *Sim) BaseURL(address string) string {
	for _, svc := range s.platform.Services {
		if svc.BaseURL != "" {
			return address + basePath(svc)
		}
	}
	return address
}

// DocumentName is the name under which the document of a platform's vendor is published; empty for none.
func DocumentName(platformID string) string {
	p, err := profileOf(platformID)
	if err != nil {
		return ""
	}
	return p.Document
}

// Close ends what waits. Serve nothing afterwards.
func (s *Sim) Close() { s.close.Do(func() { close(s.closed) }) }

// Reset forgets everything: arrivals, limits that are spent, faults, rules.
func (s *Sim) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
}

func (s *Sim) forget() {
	s.faults, s.rules = nil, nil
	s.log, s.meter = newLedger(), newMeter()
}

// ServeHTTP answers the platform's requests and, for clients on the same host, control.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isControl(r) {
		s.control.ServeHTTP(w, r)
		return
	}
	c := &call{sim: s, w: w, r: r}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		s.count(func(l *ledger) { l.totals.BrokenBodies++ })
		panic(http.ErrAbortHandler)
	}
	c.body = body
	if err := c.read(); err != nil {
		c.refuse(answerInvalid, problem{"malformed", err.Error()})
		return
	}
	c.serve()
}

func (s *Sim) count(change func(l *ledger)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.log)
}

// wait passes time, until it is over or the client or the simulator is gone; it says whether the time is over.
func (s *Sim) wait(d time.Duration, gone <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-gone:
	case <-s.closed:
	}
	return false
}

// Arrivals returns how often each key arrived in accepted calls of an action.
func (s *Sim) Arrivals(action string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, a := range s.log.arrivals {
		if a.Action == action {
			out[a.Key] = a.Arrivals
		}
	}
	return out
}

// Totals returns what became of all requests.
func (s *Sim) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.totals.clone()
}

// AddFault queues a fault. The error says what is wrong with it.
func (s *Sim) AddFault(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	return nil
}

// Reject adds a rule by which records are rejected.
func (s *Sim) Reject(r Rule) error {
	if r.EveryNth < 0 || (r.EveryNth == 0) == (r.Field == "") {
		return errors.New("a rule needs either a field with equals, or every_nth")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
	return nil
}
