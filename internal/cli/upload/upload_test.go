package upload_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/rowfile"
	"flowlane/internal/cli/upload"
	"flowlane/internal/platform/vault"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// server is a real service behind a proxy that can fail.
type server struct {
	*remote.Client

	// before sees every chunk upload; what it answers other than 0 is the status, without the service having seen it.
	before atomic.Pointer[func(n int) int]
	// cutAfter cuts the answer of a chunk that the service has accepted.
	cutAfter atomic.Bool
	chunks   atomic.Int64
}

func setup(t *testing.T) *server {
	t.Helper()
	dsn, _ := pgtest.NewDatabase(t)
	kek, err := vault.LoadKEK(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), app.Config{DatabaseURL: dsn, KEK: kek, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	org, err := account.CreateOrg(t.Context(), a.Pool, "Acme")
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := a.Accounts.CreateKey(t.Context(), a.Pool, account.NewKey{OrgID: org.ID, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	backend := httptest.NewServer(a.Handler())
	t.Cleanup(backend.Close)
	front := httptest.NewServer(s.proxy(t, backend.URL))
	t.Cleanup(front.Close)
	if s.Client, err = remote.New(front.URL+"/v1/", key); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) proxy(t *testing.T, backend string) http.Handler {
	t.Helper()
	target, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = apitest.Checked(t, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/records") {
			proxy.ServeHTTP(w, r)
			return
		}
		n := int(s.chunks.Add(1))
		if before := s.before.Load(); before != nil {
			if status := (*before)(n); status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		if s.cutAfter.CompareAndSwap(true, false) {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})
}

// sample writes a CSV file of so many rows.
func sample(t *testing.T, rows int) (string, upload.Source) {
	t.Helper()
	var b strings.Builder
	b.WriteString("id,name\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,\"name, of %d\"\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, from(path)
}

func from(path string) upload.Source {
	return func() (upload.Rows, io.Closer, error) { return rowfile.Open(path) }
}

func (s *server) remember(t *testing.T, dir, path string) *upload.Checkpoint {
	t.Helper()
	m, err := upload.Remember(dir, s.URL, path, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *server) set(t *testing.T, id string) oas.RecordSet {
	t.Helper()
	set, err := remote.Get[oas.RecordSet](t.Context(), s.Client, "/data/record-sets/"+id)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestRun(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for name, tt := range map[string]struct{ rows, chunkSize, chunks int }{
		"none":       {0, 0, 0},
		"one":        {1, 0, 1},
		"chosen":     {1234, 0, 1},
		"even":       {1000, 100, 10},
		"short last": {1001, 100, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, source := sample(t, tt.rows)
			var last upload.Progress
			res, err := upload.Run(t.Context(), s.Client, source, upload.Options{ChunkSize: tt.chunkSize,
				Progress: func(p upload.Progress) { last = p }})
			if err != nil {
				t.Fatal(err)
			}
			set := s.set(t, res.RecordSetID)
			if set.ReceivedCount != tt.rows || set.ChunkCount != tt.chunks || set.Status != oas.RecordSetStatusSealed {
				t.Errorf("the server has %d rows in %d chunks, %s", set.ReceivedCount, set.ChunkCount, set.Status)
			}
			if set.ContentHash.Value != res.ContentHash || res.Records != int64(tt.rows) {
				t.Errorf("result %+v, server %q", res, set.ContentHash.Value)
			}
			if tt.rows > 0 && (last.SentRecords != int64(tt.rows) || last.SentChunks != tt.chunks) {
				t.Errorf("progress ended at %+v", last)
			}
		})
	}
}

// TestRun_Resumes stops an upload after three chunks, as if the program had been ended, and begins it again.
func TestRun_Resumes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	path, source := sample(t, 1000)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts := upload.Options{ChunkSize: 100, Senders: 1, Checkpoint: s.remember(t, dir, path),
		Progress: func(p upload.Progress) {
			if p.SentChunks == 3 {
				cancel()
			}
		}}
	if _, err := upload.Run(ctx, s.Client, source, opts); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	before := s.chunks.Load()
	resumed := false
	opts = upload.Options{Checkpoint: s.remember(t, dir, path),
		Progress: func(p upload.Progress) { resumed = p.Resumed }}
	res, err := upload.Run(t.Context(), s.Client, source, opts)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.chunks.Load() - before; n > 7 || !resumed {
		t.Errorf("the second attempt sent %d chunks of 10, three were there (resumed: %t)", n, resumed)
	}
	if set := s.set(t, res.RecordSetID); set.ReceivedCount != 1000 {
		t.Errorf("the server has %d rows", set.ReceivedCount)
	}
	again, err := upload.Run(t.Context(), s.Client, source, upload.Options{Checkpoint: s.remember(t, dir, path)})
	if err != nil {
		t.Fatal(err)
	}
	if again.RecordSetID == res.RecordSetID {
		t.Error("an upload that was finished was resumed")
	}
	if again.ContentHash == res.ContentHash {
		t.Log("same hash although the chunks differ in size") // both are right; only the chunks' digests go in
	}
}

// TestRun_Resumes_Sealed: the program ended between the seal and its own last words.
func TestRun_Resumes_Sealed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	path, source := sample(t, 300)
	dir := t.TempDir()
	m := s.remember(t, dir, path)
	res, err := upload.Run(t.Context(), s.Client, source, upload.Options{ChunkSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Keep(res.RecordSetID, 100, 0, 1); err != nil {
		t.Fatal(err)
	}
	again, err := upload.Run(t.Context(), s.Client, source, upload.Options{Checkpoint: m})
	if err != nil || again != res {
		t.Fatalf("%+v, %v; want %+v", again, err, res)
	}
}

func TestRun_Resumes_GoneSet(t *testing.T) {
	t.Parallel()
	s := setup(t)
	path, source := sample(t, 10)
	m := s.remember(t, t.TempDir(), path)
	if err := m.Keep("0190d5ea-0000-7000-8000-000000000000", 100, 0); err != nil {
		t.Fatal(err)
	}
	if res, err := upload.Run(t.Context(), s.Client, source, upload.Options{Checkpoint: m}); err != nil ||
		res.Records != 10 {
		t.Fatalf("%+v, %v", res, err)
	}
}

// TestRun_Failures: an overloaded server, and a connection that is cut after the chunk was stored.
func TestRun_Failures(t *testing.T) {
	t.Parallel()
	s := setup(t)
	before := func(n int) int {
		if n == 2 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	s.before.Store(&before)
	s.cutAfter.Store(true)
	_, source := sample(t, 500)
	res, err := upload.Run(t.Context(), s.Client, source, upload.Options{ChunkSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	if set := s.set(t, res.RecordSetID); set.ReceivedCount != 500 || s.chunks.Load() != 7 {
		t.Errorf("%d rows, %d chunk requests", set.ReceivedCount, s.chunks.Load())
	}
}

func TestRun_Refused(t *testing.T) {
	t.Parallel()
	s := setup(t)
	path := filepath.Join(t.TempDir(), "nul.ndjson")
	if err := os.WriteFile(path, []byte("{}\n{\"a\": \"\\u0000\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := upload.Run(t.Context(), s.Client, from(path), upload.Options{})
	if err == nil || !strings.Contains(err.Error(), "body.records.1.a") {
		t.Fatalf("error %v", err)
	}
	if n := s.chunks.Load(); n != 1 {
		t.Errorf("a refused chunk was sent %d times", n)
	}
}

// TestRun_BadFile: nothing is created for a file with a mistake in its last line.
func TestRun_BadFile(t *testing.T) {
	t.Parallel()
	s := setup(t)
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("id,n\n1,2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := upload.Run(t.Context(), s.Client, from(path), upload.Options{})
	if err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Fatalf("error %v", err)
	}
	sets, err := remote.Get[oas.RecordSetList](t.Context(), s.Client, "/data/record-sets")
	if err != nil || sets.Total != 0 {
		t.Errorf("%d record sets, %v", sets.Total, err)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	_, source := sample(t, 1)
	stranger, err := remote.New(s.URL, "flow_nobody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upload.Run(t.Context(), stranger, source, upload.Options{}); err == nil ||
		!strings.Contains(err.Error(), "FLOWLANE_API_KEY") {
		t.Errorf("wrong key: %v", err)
	}
	nobody, err := remote.New("http://127.0.0.1:1", "flow_x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upload.Run(t.Context(), nobody, source, upload.Options{}); err == nil || !strings.Contains(err.Error(),
		"flowlane dev") {
		t.Errorf("no server: %v", err)
	}
}
