package flowtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxBody bounds what is kept of a call, in bytes.
const maxBody = 16 << 20

// Call is a call that came.
type Call struct {
	// Call is the method and the path with its query.
	Call string
	Body []byte
}

// String writes a call on one line.
func (c Call) String() string {
	if len(c.Body) == 0 {
		return c.Call
	}
	return c.Call + " " + line(c.value())
}

// value is the body: JSON as such, else a text.
func (c Call) value() any {
	v, err := parse(c.Body)
	if err != nil {
		return string(c.Body)
	}
	return v
}

// Receiver answers calls as the test says that is under way. Its address is that of the loopback.
type Receiver struct {
	// URL is its address, without a path.
	URL string

	server *http.Server
	mu     sync.Mutex
	test   *Test
	used   []int
	calls  []Call
}

// Listen starts a receiver; Close it.
func Listen(ctx context.Context) (*Receiver, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the calls of the test: %w", err)
	}
	r := &Receiver{URL: "http://" + listener.Addr().String()}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

// Close ends it.
func (r *Receiver) Close() { _ = r.server.Close() }

// Begin takes the answers of a test from now on.
func (r *Receiver) Begin(t *Test) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.test, r.used, r.calls = t, make([]int, len(t.Answers)), nil
}

// Calls returns what came since Begin.
func (r *Receiver) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
		http.Error(w, "the body is too long for a test", http.StatusRequestEntityTooLarge)
		return
	}
	a := r.answer(Call{Call: req.Method + " " + req.URL.RequestURI(), Body: body})
	if a.Body.IsZero() && len(body) > 0 { // as `flowlane receiver` answers
		a.body, a.kind = body, req.Header.Get("Content-Type")
	}
	if a.kind != "" {
		w.Header().Set("Content-Type", a.kind)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.body) // who does not read it any more has its reason
}

// answer notes a call and chooses what it gets: the first answer that is meant for it and not used up.
func (r *Receiver) answer(c Call) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	if r.test != nil {
		for i, a := range r.test.Answers {
			if matches(a.Call.Value, c) && (a.Times == 0 || r.used[i] < a.Times) {
				r.used[i]++
				return a
			}
		}
	}
	return Answer{Status: http.StatusOK}
}
