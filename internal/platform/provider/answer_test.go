package provider

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/memory"
)

// TestSend_AnswerWaitsForMemory: an answer for which there is no memory until the deadline is a status without a body.
func TestSend_AnswerWaitsForMemory(t *testing.T) {
	t.Parallel()
	for name, flush := range map[string]bool{"length known": false, "length unknown": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if flush {
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = w.Write([]byte(strings.Repeat("x", 100<<10)))
			}))
			defer srv.Close()
			budget := memory.New(memory.Least)
			var all []*memory.Grant
			for range 4 {
				g := budget.Begin(uuid.New())
				if err := g.Grow(t.Context(), budget.Most(), budget.Most()); err != nil {
					t.Fatal(err)
				}
				all = append(all, g)
			}
			s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)}, Memory: budget})
			defer s.Close()
			r := Request{Method: "GET", URL: srv.URL, AnswerBefore: time.Now().Add(time.Second)}
			ans := s.Send(t.Context(), r)
			if ans.Sent != Answered || ans.Status != 200 || !errors.Is(ans.Err, context.DeadlineExceeded) ||
				ans.Body != nil {
				t.Errorf("without memory: %v %d %v, %d bytes", ans.Sent, ans.Status, ans.Err, len(ans.Body))
			}
			all[0].Release()
			r = soon(r)
			r.Memory = budget.Begin(uuid.New())
			ans = s.Send(t.Context(), r)
			if ans.Err != nil || len(ans.Body) != 100<<10 {
				t.Errorf("with memory: %v, %d bytes", ans.Err, len(ans.Body))
			}
			r.Memory.Release()
			if held, peak := budget.Held(); held != 3*budget.Most() || peak > memory.Least {
				t.Errorf("%d bytes are held, %d were", held, peak)
			}
		})
	}
}
