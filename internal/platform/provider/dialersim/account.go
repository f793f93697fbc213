package dialersim

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	maxAccounts = 10_000
	maxLists    = 100_000
	maxName     = 200
)

// Kind is what a record arrived by.
type Kind string

// The kinds of arrivals. Dials are in the list "calls", http requests in the list "work".
const (
	KindUpload Kind = "upload"
	KindModify Kind = "modify"
	KindDial   Kind = "dial"
	KindHTTP   Kind = "http"
)

var kinds = [...]Kind{KindUpload, KindModify, KindDial, KindHTTP}

// kindRepeat counts the idempotency keys of the plain endpoints; nobody can ask for it.
const kindRepeat Kind = "repeat"

// account is one customer of the platform.
type account struct {
	name   string
	set    atomic.Pointer[settings]
	meter  meter
	totals [operations]opTotals

	mu      sync.Mutex // guards changes of set, and the maps
	lists   map[string]*list
	imports map[string]*importRecord
}

// list is a calling list, with what arrived in it. Lists of different kinds share a name, never a table.
type list struct {
	arrived map[Kind]*keytable // has every kind from the start

	mu sync.Mutex
	// importing holds while a synchronous import runs; busyUntil is when the asynchronous one ends.
	importing bool
	busyUntil time.Time
	imports   []*importRecord // oldest first
	records   map[string]*record
}

func newAccount(name string, keeps bool) *account {
	a := &account{name: name, meter: meter{keeps: keeps}, lists: map[string]*list{},
		imports: map[string]*importRecord{}}
	a.set.Store(defaultSettings(name))
	return a
}

func newList() *list {
	l := &list{arrived: map[Kind]*keytable{kindRepeat: new(keytable)}, records: map[string]*record{}}
	for _, kind := range kinds {
		l.arrived[kind] = new(keytable)
	}
	return l
}

// list returns a list, or nil when there is none.
func (a *account) list(name string) *list {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists[name]
}

// listForWrite returns a list, made when it is new and the account makes lists on demand; otherwise nil.
func (a *account) listForWrite(name string, strict bool) *list {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lists[name]
	if l == nil && !strict && len(a.lists) < maxLists {
		l = newList()
		a.lists[name] = l
	}
	return l
}

// change applies settings, and moves the windows when the clock moved.
func (a *account) change(changes AccountSettings, clock func() time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.set.Load()
	next, err := old.with(changes)
	if err != nil {
		return err
	}
	for _, name := range changes.Lists {
		if a.lists[name] == nil {
			a.lists[name] = newList()
		}
	}
	a.set.Store(next)
	if next.offset != old.offset || next.zone.String() != old.zone.String() {
		a.meter.realign(clock().Add(next.offset), next)
	}
	return nil
}

// account returns an account, made when it is new; nil when there are too many.
func (s *Sim) account(name string) *account {
	s.mu.RLock()
	a := s.accounts[name]
	s.mu.RUnlock()
	if a != nil {
		return a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a = s.accounts[name]; a == nil && (name == "" || len(s.accounts) < maxAccounts) {
		a = newAccount(name, s.keeps)
		s.accounts[name] = a
	}
	return a
}

// checkName says what is wrong with the name of an account or a list.
func checkName(what, name string) error {
	switch {
	case name == "":
		return errors.New("the name of the " + what + " is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name of the %s is longer than %d bytes", what, maxName)
	case !utf8.ValidString(name):
		return errors.New("the name of the " + what + " is not valid UTF-8")
	}
	return nil
}
