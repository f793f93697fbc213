package flowlane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRedirects: a request is sent on as it is, with its key, within a host and to where an organization has moved.
// Nothing else is followed, and the error says where it leads.
func TestRedirects(t *testing.T) {
	t.Parallel()
	const moved = `{"detail":"The organization is elsewhere","code":"moved"}`
	for name, c := range map[string]struct {
		status      int
		host, path  string
		body, query string
		follows     bool
	}{
		"Permanent301":  {301, "127.0.0.1", "", "", "", false},
		"Found302":      {302, "127.0.0.1", "", "", "", false},
		"SeeOther303":   {303, "127.0.0.1", "", "", "", false},
		"Temporary307":  {307, "127.0.0.1", "", "", "", true},
		"Permanent308":  {308, "127.0.0.1", "", "", "", true},
		"OtherPath":     {307, "127.0.0.1", "/in", "", "", true},
		"Moved":         {307, "localhost", "", moved, "", true},
		"OtherHost307":  {307, "localhost", "", "", "", false},
		"OtherHost308":  {308, "localhost", "", moved, "", false},
		"MovedInside":   {307, "localhost", "/login", moved, "", false},
		"MovedAndQuery": {307, "localhost", "", moved, "?to=1", false},
	} {
		for _, caller := range []Client{{APIKey: "k"}, {Token: func(context.Context) (string, error) { return "t", nil }}} {
			t.Run(name+caller.APIKey, func(t *testing.T) {
				t.Parallel()
				var arrived string
				there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					text, _ := io.ReadAll(r.Body)
					key := r.Header.Get("X-API-Key") + r.Header.Get("Authorization")
					arrived = fmt.Sprint(r.Method, " ", key, " ", string(text))
					_, _ = io.WriteString(w, `{"id":"made"}`)
				}))
				defer there.Close()
				root := strings.Replace(there.URL, "127.0.0.1", c.host, 1) + c.path
				here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Location", root+r.URL.Path+c.query)
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.body)
				}))
				defer here.Close()
				caller.URL = here.URL
				made, err := caller.CreateRecordSet(t.Context(), &RecordSetCreate{ChunkSize: Ptr(int64(7))})
				if !c.follows {
					var refused *APIError
					if !errors.As(err, &refused) || refused.Status != c.status ||
						!strings.Contains(err.Error(), " "+root+", ") {
						t.Errorf("error: %v", err)
					}
					if arrived != "" || made.ID != "" {
						t.Errorf("followed: %s", arrived)
					}
					return
				}
				want := `POST k {"chunk_size":7}`
				if caller.APIKey == "" {
					want = `POST Bearer t {"chunk_size":7}`
				}
				if err != nil || made.ID != "made" || arrived != want {
					t.Errorf("got %q and %s: %v", arrived, made.ID, err)
				}
			})
		}
	}
}

// TestRedirects_Ends: what leads in a circle ends, as does what would send a key in the clear.
func TestRedirects_Ends(t *testing.T) {
	t.Parallel()
	asked := 0
	circle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, r.URL.Path, http.StatusPermanentRedirect)
	}))
	defer circle.Close()
	_, err := (&Client{URL: circle.URL}).GetMe(t.Context())
	want := "308: the answer leads to " + circle.URL + ","
	if asked != mostRedirects+1 || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%d requests: %v", asked, err)
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, circle.URL+r.URL.Path, http.StatusPermanentRedirect)
	}))
	defer secure.Close()
	asked = 0
	_, err = (&Client{URL: secure.URL, APIKey: "k", HTTP: secure.Client()}).GetMe(t.Context())
	if asked != 0 || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%d requests: %v", asked, err)
	}
}
