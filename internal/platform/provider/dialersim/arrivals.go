package dialersim

import (
	"fmt"
	"net/http"
	"slices"
)

// Arrivals returns how often each key was uploaded to a list, over all accounts.
func (s *Sim) Arrivals(list string) map[string]int { return s.ArrivalsOf("", list, KindUpload) }

// ArrivalsOf returns how often each key arrived in a list by this kind; an empty account means all accounts.
func (s *Sim) ArrivalsOf(account, list string, kind Kind) map[string]int {
	found := map[string]int{}
	s.arrived(account, list, kind).each(func(key []byte, arrivals int, _ bool) bool {
		found[string(key)] = arrivals
		return true
	})
	return found
}

// ArrivalSummary is what arrived in a list, in numbers.
type ArrivalSummary struct {
	Keys     int `json:"keys"`
	Arrivals int `json:"arrivals"`
	// Repeated is the number of keys that arrived more than once, Most the most arrivals of one key.
	Repeated int `json:"repeated"`
	Most     int `json:"most"`
	// Rejected is the number of keys that were rejected at least once.
	Rejected int `json:"rejected"`
}

// ArrivalSummary sums up what ArrivalsOf returns.
func (s *Sim) ArrivalSummary(account, list string, kind Kind) ArrivalSummary {
	var sum ArrivalSummary
	s.arrived(account, list, kind).each(func(_ []byte, arrivals int, rejected bool) bool {
		if arrivals > 0 {
			sum.Keys++
		}
		sum.Arrivals += arrivals
		sum.Most = max(sum.Most, arrivals)
		if arrivals > 1 {
			sum.Repeated++
		}
		if rejected {
			sum.Rejected++
		}
		return true
	})
	return sum
}

// arrived returns the table of a list and kind; over several accounts, a sum of their tables as they are now.
func (s *Sim) arrived(account, list string, kind Kind) *keytable {
	var tables []*keytable
	for _, a := range s.everyAccount() {
		if account != "" && account != a.name {
			continue
		}
		if l := a.list(list); l != nil {
			tables = append(tables, l.arrived[kind])
		}
	}
	if len(tables) == 1 {
		return tables[0]
	}
	sum := new(keytable)
	for _, t := range tables {
		t.each(func(key []byte, arrivals int, rejected bool) bool {
			sum.addLocked(key, arrivals, rejected)
			return true
		})
	}
	return sum
}

// arrivalQuery reads list, kind and account of a control request.
func (s *Sim) arrivalQuery(r *http.Request) (account, list string, kind Kind, err error) {
	query := r.URL.Query()
	kind = KindUpload
	if text := query.Get("kind"); text != "" {
		kind = Kind(text)
	}
	if !slices.Contains(kinds[:], kind) {
		return "", "", "", fmt.Errorf("kind %q is not one of %v", kind, kinds)
	}
	list = query.Get("list")
	return query.Get("account"), list, kind, checkName("list", list)
}

func (s *Sim) controlArrivals(w http.ResponseWriter, r *http.Request) {
	account, list, kind, err := s.arrivalQuery(r)
	if err != nil {
		controlBad(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	const chunk = 64 << 10
	lines := make([]byte, 0, chunk+2*maxKey)
	s.arrived(account, list, kind).each(func(key []byte, arrivals int, rejected bool) bool {
		if lines = appendArrival(lines, key, arrivals, rejected); len(lines) < chunk {
			return true
		}
		_, err = w.Write(lines)
		lines = lines[:0]
		return err == nil
	})
	if err == nil {
		_, _ = w.Write(lines)
	}
}

func (s *Sim) controlArrivalSummary(w http.ResponseWriter, r *http.Request) {
	account, list, kind, err := s.arrivalQuery(r)
	if err != nil {
		controlBad(w, err)
		return
	}
	writeJSON(w, http.StatusOK, encode(s.ArrivalSummary(account, list, kind)))
}
