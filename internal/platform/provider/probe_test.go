package provider

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"flowlane/internal/platform/catalog"
)

// probed loads the catalog with the dialer at a test server.
func probed(t *testing.T, url string) (*Sender, *catalog.Platform, *catalog.Service) {
	t.Helper()
	c, err := catalog.Load(catalog.Options{BaseURLs: map[string]string{"dialer": url}})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := c.Platform("dialer")
	s, _ := c.Service("dialer__api")
	return newTestSender(t, hostOf(url)), p, s
}

func TestProbes(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != "s3cret-word" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/whoami":
			_, _ = io.WriteString(w,
				`{"account_number":1001,"account_name":"Demo","user":"ann","time_zone":"Europe/Paris"}`)
		case "/counters":
			_, _ = io.WriteString(w,
				`{"as_of":"2026-01-02T03:04:05Z","counters":[{"operation_type":"upload","window_seconds":60,"limit":20,"value":3,"resets_at":"x"}]}`)
		}
	}))
	defer srv.Close()
	s, p, svc := probed(t, srv.URL)
	a, err := s.Whoami(t.Context(), p, svc, basic(t))
	if err != nil || a != (Account{Number: "1001", Name: "Demo", TimeZone: "Europe/Paris"}) {
		t.Errorf("account is %+v, error %v", a, err)
	}
	list, asOf, err := s.Counters(t.Context(), p, svc, basic(t))
	if err != nil || len(list) != 1 || list[0] != (Counter{Bucket: "upload", WindowSeconds: 60, Limit: 20, Value: 3}) ||
		asOf.Unix() != 1767323045 {
		t.Errorf("counters are %+v as of %v, error %v", list, asOf, err)
	}
}

// TestCounters_Odd: what no budget can hold is passed over or cut, and what makes no sense is refused.
func TestCounters_Odd(t *testing.T) {
	t.Parallel()
	counter := func(window, limit, value string) string {
		return `{"operation_type":"upload","window_seconds":` + window + `,"limit":` + limit + `,"value":` + value + `}`
	}
	for items, want := range map[string][]Counter{
		counter("2592000", "5", "1") + "," + counter("0", "5", "1") + "," +
			counter("3600", "5", "1"): {{Bucket: "upload", WindowSeconds: 3600, Limit: 5, Value: 1}},
		counter("60", "4294967301", "9007199254740992"): {
			{Bucket: "upload", WindowSeconds: 60, Limit: math.MaxInt32, Value: math.MaxInt32}},
		counter("60", "-1", "2"):      {{Bucket: "upload", WindowSeconds: 60, Value: 2}},
		counter("60", "5", "-2"):      nil,
		counter(`"minute"`, "5", "2"): nil,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"as_of":"2026-01-02T03:04:05Z","counters":[`+items+`]}`)
		}))
		s, p, svc := probed(t, srv.URL)
		got, _, err := s.Counters(t.Context(), p, svc, basic(t))
		if !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%s: counters are %+v, error %v; want %+v", items, got, err, want)
		}
		srv.Close()
	}
}

func TestProbes_Fail(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"401":      {answer(401, `{"message":"s3cret-word"}`), AuthFailed},
		"403":      {answer(403, ""), PermissionDenied},
		"429":      {answer(429, ""), RateLimitedClass},
		"500":      {answer(500, ""), UnknownClass},
		"redirect": {answer(302, ""), UnknownClass},
		"garbage":  {answer(200, "<html>"), UnknownClass},
		"unnamed":  {answer(200, "{}"), UnknownClass},
		"cut":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Network},
		"slow":     {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(tc.handler)
			defer srv.Close()
			s, p, svc := probed(t, srv.URL)
			ctx := t.Context()
			if tc.want == Timeout {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			_, err := s.Whoami(ctx, p, svc, basic(t))
			var failed *ProbeError
			if !errors.As(err, &failed) || failed.Class != tc.want || failed.Details == "" ||
				strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error is %v; want %s", err, tc.want)
			}
		})
	}
}

func TestProbes_Unreachable(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	s, p, svc := probed(t, "http://"+ln.Addr().String())
	class := func(err error) string {
		var failed *ProbeError
		if errors.As(err, &failed) {
			return failed.Class
		}
		return ""
	}
	if _, err := s.Whoami(t.Context(), p, svc, basic(t)); class(err) != Network {
		t.Errorf("error is %v", err)
	}
	if _, err := newTestSender(t).Whoami(t.Context(), p, svc, basic(t)); class(err) != Network {
		t.Errorf("with the guard the error is %v", err)
	}
	if _, err := s.Whoami(t.Context(), p, svc, Secret{}); class(err) != InvalidShape {
		t.Errorf("without a secret the error is %v", err)
	}
	if _, err := s.Whoami(t.Context(), &catalog.Platform{ID: "x"}, svc, basic(t)); class(err) != UnknownClass {
		t.Errorf("without accounts the error is %v", err)
	}
}

func TestCredentialUse(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	for _, tc := range []struct {
		ans   Answer
		class string
		used  bool
	}{
		{Answer{Sent: Answered, Status: 200}, "", true},
		{Answer{Sent: Answered, Status: 422}, "", true}, // the record is at fault, not the credential
		{Answer{Sent: Answered, Status: 409}, "", true},
		{Answer{Sent: Answered, Status: 401}, AuthFailed, true},
		{Answer{Sent: Answered, Status: 401, Err: cut}, AuthFailed, true},
		{Answer{Sent: Answered, Status: 403}, PermissionDenied, true},
		{Answer{Sent: Answered, Status: 429}, RateLimitedClass, true},
		{Answer{Sent: Answered, Status: 302}, UnknownClass, true},
		{Answer{Sent: Answered, Status: 503}, UnknownClass, true},
		{Answer{Sent: Answered, Status: 200, Err: cut}, Network, true},
		{Answer{Sent: Maybe, Err: cut}, Network, true},
		{Answer{Sent: Maybe, Err: context.DeadlineExceeded}, Timeout, true},
		{Answer{Sent: Maybe, Err: ErrTooLate}, Timeout, true},
		{Answer{Sent: NotSent, Err: cut}, Network, true},
		{Answer{Sent: NotSent, Err: ErrTooLate}, "", false},
		{Answer{Sent: NotSent, Err: ErrAddressRefused}, "", false},
		{Answer{Sent: NotSent, Err: ErrBadRequest}, "", false},
	} {
		if class, used := CredentialUse(&tc.ans); class != tc.class || used != tc.used {
			t.Errorf("%s, status %d, %v: class %q, used %v", tc.ans.Sent, tc.ans.Status, tc.ans.Err, class, used)
		}
	}
}
