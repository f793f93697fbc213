package dialersim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
)

// SetAccount changes an account and makes it when it is new. It panics when the settings are invalid.
func (s *Sim) SetAccount(account string, a AccountSettings) {
	if err := s.changeAccount(account, a); err != nil {
		panic(err)
	}
}

func (s *Sim) changeAccount(name string, changes AccountSettings) error {
	if err := checkName("account", name); err != nil {
		return err
	}
	a := s.account(name)
	if a == nil {
		return errors.New("there are too many accounts")
	}
	return a.change(changes, s.clock)
}

// AddFault queues a fault. It panics when the fault is invalid.
func (s *Sim) AddFault(f Fault) {
	if err := f.check(); err != nil {
		panic(err)
	}
	s.faults.add(f)
}

// ClearFaults takes all waiting faults away.
func (s *Sim) ClearFaults() { s.faults.clear() }

// Spend spends n calls of an operation type as another client of the account would: what the limits refuse is not
// spent. It returns how many were, and panics when the operation is not metered.
func (s *Sim) Spend(account, operation string, n int) int {
	spent, err := s.spend(account, operation, n)
	if err != nil {
		panic(err)
	}
	return spent
}

func (s *Sim) spend(account, operation string, n int) (int, error) {
	op, ok := operationNamed(operation)
	if !ok || !op.metered() {
		return 0, fmt.Errorf("operation %q is not one of %v", operation, operationNames[:metered])
	}
	if n < 0 {
		return 0, errors.New("count must not be negative")
	}
	if err := checkName("account", account); err != nil {
		return 0, err
	}
	a := s.account(account)
	if a == nil {
		return 0, errors.New("there are too many accounts")
	}
	set := a.set.Load()
	return int(a.meter.takeUpTo(op, s.now(set), set, int64(n))), nil
}

// Counters returns the true counters of an account, without lag.
func (s *Sim) Counters(account string) []Counter {
	a := s.account(account)
	if a == nil {
		return nil
	}
	set := a.set.Load()
	return a.meter.read(s.now(set), set, 0)
}

// Windows returns every window of an account in which something was spent: the open ones and, with Options.KeepWindows,
// those that are over.
func (s *Sim) Windows(account string) []Spent {
	a := s.account(account)
	if a == nil {
		return nil
	}
	set := a.set.Load()
	return a.meter.spent(s.now(set), set)
}

// control answers /_control/: it has no credentials, and speaks with clients on the same host only.
func (s *Sim) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /_control/accounts/{account}", s.controlPutAccount)
	mux.HandleFunc("GET /_control/accounts/{account}", s.controlGetAccount)
	mux.HandleFunc("POST /_control/faults", s.controlAddFaults)
	mux.HandleFunc("GET /_control/faults", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, encode(s.faults.list()))
	})
	mux.HandleFunc("DELETE /_control/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_control/spend", s.controlSpend)
	mux.HandleFunc("GET /_control/arrivals", s.controlArrivals)
	mux.HandleFunc("GET /_control/arrivals/summary", s.controlArrivalSummary)
	mux.HandleFunc("GET /_control/totals", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, encode(s.Totals()))
	})
	mux.HandleFunc("POST /_control/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeFault(w, http.StatusNotFound, refusal{Fault: "not_found",
			Message: fmt.Sprintf("There is no control operation %s %s.", r.Method, r.URL.Path)})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil || !isLoopback(host) {
			writeFault(w, http.StatusForbidden, refusal{Fault: "forbidden",
				Message: "Control is open to clients on the same host only."})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Reset forgets everything: accounts, lists, arrivals, faults and totals.
func (s *Sim) Reset() {
	s.mu.Lock()
	s.accounts = map[string]*account{}
	s.mu.Unlock()
	s.faults.clear()
	s.faults.mu.Lock()
	clear(s.faults.fired)
	s.faults.mu.Unlock()
	s.recordBytes.Store(0)
	s.unauthorized.Store(0)
	s.brokenBodies.Store(0)
	s.redirectsFollowed.Store(0)
	s.callbacks.Store(0)
	s.callbacksFailed.Store(0)
}

func controlBad(w http.ResponseWriter, err error) {
	writeFault(w, http.StatusBadRequest, refusal{Fault: "invalid_request", Message: err.Error()})
}

// decode reads a control request; an unknown field is an error, so that a typing mistake is seen.
func decode(body io.Reader, into any) error {
	d := json.NewDecoder(io.LimitReader(body, maxSmallBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body has more than one JSON value")
	}
	return nil
}

func (s *Sim) controlPutAccount(w http.ResponseWriter, r *http.Request) {
	var changes AccountSettings
	err := decode(r.Body, &changes)
	if err == nil {
		err = s.changeAccount(r.PathValue("account"), changes)
	}
	if err != nil {
		controlBad(w, err)
		return
	}
	s.controlGetAccount(w, r)
}

func (s *Sim) controlGetAccount(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("account")
	s.mu.RLock()
	a := s.accounts[name]
	s.mu.RUnlock()
	if a == nil {
		writeFault(w, http.StatusNotFound, refusal{Fault: "unknown_account", Message: "There is no account " + name +
			" yet."})
		return
	}
	writeJSON(w, http.StatusOK, encode(struct {
		Account  string          `json:"account"`
		Settings AccountSettings `json:"settings"`
		Counters []Counter       `json:"counters"`
	}{name, a.set.Load().shown(), s.Counters(name)}))
}

func (s *Sim) controlAddFaults(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	if err := decode(r.Body, &raw); err != nil {
		controlBad(w, err)
		return
	}
	faults, err := decodeFaults(raw)
	if err != nil {
		controlBad(w, err)
		return
	}
	for _, f := range faults {
		s.faults.add(f)
	}
	writeJSON(w, http.StatusCreated, encode(s.faults.list()))
}

// decodeFaults reads one fault or a list of them; all are valid or none is taken.
func decodeFaults(raw []byte) ([]Fault, error) {
	if raw[0] != '[' {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	var faults []Fault
	if err := decode(bytes.NewReader(raw), &faults); err != nil {
		return nil, err
	}
	for i := range faults {
		if err := faults[i].check(); err != nil {
			return nil, err
		}
	}
	return faults, nil
}

func (s *Sim) controlSpend(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Account   string `json:"account"`
		Operation string `json:"operation"`
		Count     int    `json:"count"`
	}
	err := decode(r.Body, &request)
	spent := 0
	if err == nil {
		spent, err = s.spend(request.Account, request.Operation, request.Count)
	}
	if err != nil {
		controlBad(w, err)
		return
	}
	writeJSON(w, http.StatusOK, encode(map[string]int{"spent": spent, "refused": request.Count - spent}))
}
