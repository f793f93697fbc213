package blob_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/blob"
	"flowlane/test/servers"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, servers.S3Key); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func open(t *testing.T, address string) blob.Store {
	t.Helper()
	s, err := blob.Open(address)
	require.NoError(t, err)
	return s
}

// TestS3: bodies are written, read in parts, listed and deleted in a server that others wrote, behind a prefix of a
// bucket.
func TestS3(t *testing.T) {
	t.Parallel()
	ctx, endpoint := t.Context(), "?path_style=true&endpoint=http://"+servers.S3(t)
	s, root := open(t, "s3://stock/a/b/"+endpoint), open(t, "s3://stock"+endpoint)
	require.NoError(t, blob.Probe(ctx, s))
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	for i := range 5 {
		require.NoError(t, s.Put(ctx, fmt.Sprintf("x/%d", i), body))
	}
	require.NoError(t, s.Put(ctx, "y", nil))
	for _, at := range [][2]int64{{0, 1}, {5, 17}, {999_990, 10}, {999_995, 100}, {0, 1_000_000}, {1_000_000, 5},
		{2_000_000, 1}} {
		got, err := s.Get(ctx, "x/3", at[0], at[1])
		require.NoError(t, err, at)
		assert.Equal(t, string(body[min(at[0], 1_000_000):min(at[0]+at[1], 1_000_000)]), string(got), at)
	}
	_, err := s.Get(ctx, "x/9", 0, 1)
	require.ErrorIs(t, err, blob.ErrNotFound)
	keys, err := s.List(ctx, "x/", "x/1", 3)
	require.NoError(t, err)
	assert.Equal(t, []string{"x/2", "x/3", "x/4"}, keys)
	keys, err = root.List(ctx, "", "", 1000)
	require.NoError(t, err)
	assert.Equal(t, []string{"a/b/x/0", "a/b/x/1", "a/b/x/2", "a/b/x/3", "a/b/x/4", "a/b/y"}, keys)
	require.NoError(t, s.Delete(ctx, "x/0", "x/1", "x/2", "x/3", "x/4", "x/5", "nothing"))
	keys, err = s.List(ctx, "", "", 1000)
	require.NoError(t, err)
	assert.Equal(t, []string{"y"}, keys)
}

// TestS3_Unavailable: whatever is wrong with a store is one fault; who gave up is told that.
func TestS3_Unavailable(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(broken.Close)
	for name, s := range map[string]blob.Store{
		"refuses":   open(t, "s3://stock?path_style=true&endpoint="+broken.URL),
		"is not up": open(t, "s3://stock?path_style=true&endpoint=http://127.0.0.1:1"),
	} {
		_, err := s.Get(t.Context(), "x", 0, 1)
		for _, err := range []error{err, s.Put(t.Context(), "x", []byte("y")), s.Delete(t.Context(), "x"),
			blob.Probe(t.Context(), s)} {
			assert.True(t, blob.IsUnavailable(err), "%s: %v", name, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Get(gone, "x", 0, 1)
		require.ErrorIs(t, err, context.Canceled)
		assert.False(t, blob.IsUnavailable(err))
	}
}

// TestOpen_Refuses: an address that is none, has keys, or settings that nobody knows, says so, and shows no key.
func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	for address, says := range map[string]string{
		"":                              "no address such as s3://",
		"https://example.com/b":         "no address such as s3://",
		"s3:///x":                       "no address such as s3://",
		"s3://key:secret@bucket":        "AWS_ACCESS_KEY_ID",
		"s3://bucket?path=x":            `no setting "path"`,
		"s3://bucket?path_style=maybe":  "neither true nor false",
		"s3://bucket?endpoint=nowhere":  "endpoint",
		"s3://bucket?endpoint=ftp://as": "endpoint",
	} {
		_, err := blob.Open(address)
		require.ErrorContains(t, err, says, address)
		assert.NotContains(t, err.Error(), "secret@")
	}
}
