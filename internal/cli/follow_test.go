package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"flowlane/internal/cli/remote"
)

const (
	firstEvent = "id: 1\nevent: execution.snapshot\ndata: {\"status\":\"running\"}\n\n"
	lastEvent  = "id: 2\nevent: execution.closed\ndata: {\"status\":\"completed\"}\n\n"
)

// failing is a server that answers the nth opening of a stream, from 1, as it is told: with a status, or with a text
// and a cut.
type failing struct {
	answer func(n int) (status int, text string)
	// after is the Last-Event-ID of each opening.
	after []string
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		fmt.Fprint(w, `{"token":"t"}`)
		return
	}
	f.after = append(f.after, r.Header.Get("Last-Event-ID"))
	status, text := f.answer(len(f.after))
	w.WriteHeader(status)
	fmt.Fprint(w, text)
	if status == http.StatusOK && !strings.Contains(text, "closed") {
		w.(http.Flusher).Flush() //nolint:forcetypeassert // the server's own writer is one
		panic(http.ErrAbortHandler)
	}
}

// TestFollow_ServerFails follows on servers that fail on purpose: it goes on, says why it waits, and gives up.
func TestFollow_ServerFails(t *testing.T) {
	t.Parallel()
	const refusal = `{"detail":"Later","code":"c","request_id":"r"}`
	once := func(then func(n int) (int, string)) func(int) (int, string) {
		return func(n int) (int, string) {
			if n == 1 {
				return http.StatusOK, firstEvent
			}
			return then(n)
		}
	}
	for name, tt := range map[string]struct {
		answer  func(n int) (status int, text string)
		opened  int
		printed string
		// said is how many lines are said while it goes on, and what each has.
		said  int
		line  string
		fails string
		exit  int
	}{
		"CutOnce": {
			answer: once(func(int) (int, string) { return http.StatusOK, lastEvent }),
			opened: 2, printed: "12",
		},
		"CutForGood": {
			answer: once(func(int) (int, string) { return http.StatusOK, "retry: 1\n\n" }),
			opened: 11, printed: "1", said: 9, line: "Cannot follow the execution: the stream was cut off: ",
			fails: "Given up: nothing came for 10 times in a row; the execution goes on. " +
				"Once the server can be reached (`flowlane doctor`), `again` shows it again", exit: exitUnavailable,
		},
		"UnavailableForGood": {
			answer: func(int) (int, string) { return http.StatusServiceUnavailable, refusal },
			opened: 10, said: 9, line: "Cannot follow the execution: the server answered 503: Later; trying again in ",
			fails: "503: Later\nGiven up: ", exit: exitUnavailable,
		},
		"EventsInBetween": {
			answer: func(n int) (int, string) {
				switch {
				case n == 30:
					return http.StatusOK, lastEvent
				case n%6 == 1:
					return http.StatusOK, firstEvent
				}
				return http.StatusBadGateway, ""
			},
			opened: 30, printed: "111112", said: 24, line: "the server answered 502",
		},
		"CutWhileNothingHappens": { // by a proxy that ends each connection after a while
			answer: once(func(n int) (int, string) {
				if n == 30 {
					return http.StatusOK, lastEvent
				}
				return http.StatusOK, "retry: 1\n\n:\n\n"
			}),
			opened: 30, printed: "12",
		},
		"RefusedAtOnce": {
			answer: func(int) (int, string) { return http.StatusNotFound, refusal },
			opened: 1, fails: "404: Later", exit: exitNotFound,
		},
		"RefusedLater": {
			answer: once(func(int) (int, string) { return http.StatusForbidden, refusal }),
			opened: 2, printed: "1", fails: "403: Later", exit: exitNotAllowed,
		},
		"NothingEver": {
			answer: func(int) (int, string) { return http.StatusOK, "" },
			opened: 1, fails: "the stream was cut off", exit: exitUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &failing{answer: tt.answer}
			printed, said, err := f.follow(t)
			if printed != tt.printed || len(f.after) != tt.opened {
				t.Errorf("printed %q, opened after %q", printed, f.after)
			}
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(),
				tt.fails) || exitCode(err) != tt.exit) {
				t.Errorf("error: %v", err)
			}
			lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
			if said == "" {
				lines = nil
			}
			if len(lines) != tt.said {
				t.Errorf("said %q", said)
			}
			for _, line := range lines {
				if !strings.Contains(line, tt.line) || !strings.Contains(line, "; trying again in 0s (") {
					t.Errorf("said %q", line)
				}
			}
		})
	}
}

// follow follows without waiting, and returns the ids of the events that were printed, and what was said.
func (f *failing) follow(t *testing.T) (printed, said string, err error) {
	t.Helper()
	server := httptest.NewServer(f)
	defer server.Close()
	client, err := remote.New(server.URL, "k")
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	follow := followed{
		what: "execution", path: "/stream", closed: "execution.closed", again: "again",
		print: func(e event) error { printed += e.ID; return nil },
		wait:  func(int) time.Duration { return 0 },
	}
	err = follow.follow(t.Context(), client, &stderr)
	return printed, stderr.String(), err
}

// TestFollow_PrintFails: where what comes cannot be printed, the stream is not asked for again.
func TestFollow_PrintFails(t *testing.T) {
	t.Parallel()
	f := &failing{answer: func(int) (int, string) { return http.StatusOK, firstEvent }}
	server := httptest.NewServer(f)
	defer server.Close()
	client, err := remote.New(server.URL, "k")
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	follow := followed{path: "/stream", print: func(event) error { return full },
		wait: func(int) time.Duration { return 0 }}
	if err := follow.follow(t.Context(), client, &strings.Builder{}); !errors.Is(err, full) || len(f.after) != 1 {
		t.Errorf("opened %d times: %v", len(f.after), err)
	}
}

func TestReopenAfter(t *testing.T) {
	t.Parallel()
	for failures, most := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 5: longestReopen,
		1000: longestReopen} {
		if got := reopenAfter(failures); got < most/2 || got > most {
			t.Errorf("after %d failures: %s", failures, got)
		}
	}
}
