package remote_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flowlane/internal/cli/remote"
)

// TestRedirects: a request is sent on as it is, with its key, within a host and to where an organization has moved.
// Nothing else is followed, and the error says where it leads.
func TestRedirects(t *testing.T) {
	t.Parallel()
	const moved = `{"detail":"The organization is elsewhere","code":"moved","hint":"h"}`
	for name, c := range map[string]struct {
		status     int
		host, path string
		body       string
		follows    bool
	}{
		"Permanent301": {301, "127.0.0.1", "", "", false},
		"Found302":     {302, "127.0.0.1", "", "", false},
		"SeeOther303":  {303, "127.0.0.1", "", "", false},
		"Temporary307": {307, "127.0.0.1", "", "", true},
		"Permanent308": {308, "127.0.0.1", "/in", "", true},
		"Moved":        {307, "localhost", "", moved, true},
		"OtherHost307": {307, "localhost", "", "", false},
		"OtherHost308": {308, "localhost", "", moved, false},
		"MovedInside":  {307, "localhost", "/login", moved, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arrived []string
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				arrived = append(arrived, strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("X-API-Key"),
					r.Header.Get("Idempotency-Key"), string(text)}, " "))
			}))
			defer there.Close()
			root := strings.Replace(there.URL, "127.0.0.1", c.host, 1) + c.path
			here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", root+r.RequestURI)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer here.Close()
			client, err := remote.New(here.URL, "k")
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Send(t.Context(), remote.Request{Method: http.MethodPost, Path: "/a", Body: []byte(`{"b":1}`),
				Query: map[string][]string{"q": {"1"}}, Header: http.Header{"Idempotency-Key": {"i"}}, Repeat: true})
			if err == nil {
				_ = res.Body.Close()
			}
			chunk := client.AppendChunk(t.Context(), "s", []byte("{}"))
			if c.follows {
				want := "POST " + c.path + `/v1/a?q=1 k i {"b":1},POST ` + c.path + "/v1/data/record-sets/s/records k  {}"
				if got := strings.Join(arrived, ","); err != nil || chunk != nil || got != want {
					t.Errorf("got %s, want %s: %v, %v", got, want, err, chunk)
				}
				return
			}
			for _, err := range []error{err, chunk} {
				if remote.Status(err) != c.status || !strings.HasSuffix(err.Error(), ": it leads to "+root+
					", which is not followed; if that is the server, set FLOWLANE_URL to it") {
					t.Errorf("error: %v", err)
				}
			}
			if len(arrived) > 0 {
				t.Errorf("followed: %q", arrived)
			}
		})
	}
}
