package provider

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
)

// TestOrigins: a secret goes to its origins, and to nothing that looks like them or is mapped to them. One of the
// platform whose flows name addresses goes nowhere else either.
func TestOrigins(t *testing.T) {
	t.Parallel()
	crm := &secret{platformID: "crm", origins: []string{"https://api.example.com"}}
	core := &secret{platformID: "core", origins: crm.origins}
	elsewhere := &catalog.Service{PlatformID: "core"}
	text, err := os.ReadFile("testdata/origins.txt")
	require.NoError(t, err)
	cases := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		want, quoted, ok := strings.Cut(line, "\t")
		require.True(t, ok, line)
		address, err := strconv.Unquote(`"` + quoted + `"`)
		require.NoError(t, err, line)
		cases++
		for _, in := range []*secret{crm, core} {
			err = in.mayGo(elsewhere, "", address)
			assert.Equal(t, want == "yes", err == nil, "%s of %s: %v", line, in.platformID, err)
			if err != nil {
				require.ErrorIs(t, err, ErrParams)
			}
			require.Error(t, (&secret{platformID: in.platformID}).mayGo(elsewhere, "", address), "without origins")
		}
	}
	assert.Greater(t, cases, 20)
}

// TestSend_HostBeyondASCII: such a host is refused before anything is sent, with what to write in its place.
func TestSend_HostBeyondASCII(t *testing.T) {
	t.Parallel()
	s := NewSender(Options{})
	defer s.Close()
	ans := s.Send(t.Context(), Request{Method: "GET", URL: "https://ap\u0130.example.com/"})
	assert.Equal(t, NotSent, ans.Sent)
	require.ErrorIs(t, ans.Err, ErrBadRequest)
	assert.ErrorContains(t, ans.Err, "xn--")
}

// TestSend_PlatformHosts: a private host that the operator named for one platform is reached by its calls alone, also
// over a connection that is open.
func TestSend_PlatformHosts(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "ok")
	}))
	defer srv.Close()
	s := NewSender(Options{PlatformHosts: map[string][]string{"dialer": {hostOf(srv.URL)}}})
	defer s.Close()
	for range 2 {
		ans := s.Send(t.Context(), Request{Method: "GET", URL: srv.URL, PlatformID: "dialer"})
		require.NoError(t, ans.Err)
		for _, platform := range []string{"", "core", "other"} {
			ans = s.Send(t.Context(), Request{Method: "GET", URL: srv.URL, PlatformID: platform})
			assert.Equal(t, NotSent, ans.Sent, platform)
			require.ErrorIs(t, ans.Err, ErrAddressRefused, platform)
		}
	}
}
