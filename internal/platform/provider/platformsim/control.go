package platformsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const (
	controlPrefix  = "/_control/"
	maxControlBody = 1 << 20
)

func isControl(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, controlPrefix) }

// controls answers under /_control/: it has no credentials, and speaks with clients on the same host only.
func (s *Sim) controls() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /_control/faults", func(w http.ResponseWriter, r *http.Request) { added(w, r, s.AddFault) })
	mux.HandleFunc("GET /_control/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		writeJSON(w, http.StatusOK, append([]*Fault{}, s.faults...))
	})
	mux.HandleFunc("DELETE /_control/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = nil
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_control/rules", func(w http.ResponseWriter, r *http.Request) { added(w, r, s.Reject) })
	mux.HandleFunc("DELETE /_control/rules", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rules = nil
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /_control/arrivals", s.controlArrivals)
	mux.HandleFunc("GET /_control/totals", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK,
			s.Totals())
	})
	mux.HandleFunc("GET /_control/limits", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK,
			s.Most())
	})
	mux.HandleFunc("GET /_control/requests", func(w http.ResponseWriter, _ *http.Request) {
		var all []string
		for _, r := range s.routes {
			all = append(all, strings.TrimSpace(r.Method+" "+r.Path+" "+r.Action))
		}
		writeJSON(w, http.StatusOK, all)
	})
	mux.HandleFunc("POST /_control/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		controlBad(w, http.StatusNotFound, fmt.Errorf("there is no control operation %s %s", r.Method, r.URL.Path))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Unmap().IsLoopback() {
			controlBad(w, http.StatusForbidden, errors.New("control is open to clients on the same host only"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Most returns the most calls that were ever counted in one window of each limit.
func (s *Sim) Most() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.meter.most)
}

// controlArrivals writes one line for each key, in the order of first arrival.
func (s *Sim) controlArrivals(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	all := slices.Clone(s.log.arrivals)
	lines := make([]Arrival, len(all))
	for i, a := range all {
		lines[i] = *a
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	for _, a := range lines {
		if action := r.URL.Query().Get("action"); action == "" || action == a.Action {
			_ = enc.Encode(a)
		}
	}
}

// added reads one thing, in which an unknown field is an error, and adds it.
func added[T any](w http.ResponseWriter, r *http.Request, add func(T) error) {
	var thing T
	d := json.NewDecoder(io.LimitReader(r.Body, maxControlBody))
	d.DisallowUnknownFields()
	err := d.Decode(&thing)
	if err == nil {
		err = add(thing)
	}
	if err != nil {
		controlBad(w, http.StatusBadRequest, err)
		return
	}
	writeJSON(w, http.StatusCreated, thing)
}

func controlBad(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}
