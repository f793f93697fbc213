package dialersim_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"flowlane/internal/platform/provider/dialersim"
)

// manyRows is an upload body of n rows of about 200 bytes; ids start at from.
func manyRows(from, n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"rows":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"row-%08d","first_name":"Wilhelmina","last_name":"Featherstonehaugh","phone":"+15550%06d","city":"Llanfairpwll","note":"prefers a call after six","score":%d.5,"active":true,"segment":"spring-2026"}`, from+i, i%1_000_000, i%100)
	}
	b.WriteString(`],"key_field":"id"}`)
	return b.Bytes()
}

func benchmarkUpload(b *testing.B, overHTTP bool, digest string) {
	sim := dialersim.New(dialersim.Options{})
	sim.SetAccount("1001", dialersim.AccountSettings{
		Digest: digest, Limits: map[string]map[int]int64{"*": {60: 0, 3600: 0, 86400: 0}},
	})
	server := httptest.NewServer(sim)
	defer server.Close()
	const bodies, rows = 20, 50_000
	var all [bodies][]byte
	for i := range all {
		all[i] = manyRows(i*rows, rows)
	}
	b.SetBytes(int64(len(all[0])))
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		body := all[i%bodies]
		if overHTTP {
			req, _ := http.NewRequest(http.MethodPost, server.URL+"/lists/demo/upload", bytes.NewReader(body))
			req.SetBasicAuth("1001", "x")
			res, err := http.DefaultClient.Do(req)
			if err != nil || res.StatusCode != http.StatusOK {
				b.Fatal(res, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			continue
		}
		req := httptest.NewRequest(http.MethodPost, "/lists/demo/upload", bytes.NewReader(body))
		req.SetBasicAuth("1001", "x")
		res := httptest.NewRecorder()
		if sim.ServeHTTP(res, req); res.Code != http.StatusOK {
			b.Fatal(res.Code, res.Body.String())
		}
	}
}

// BenchmarkUpload is an upload of 50,000 rows of about 200 bytes: the handler alone and over HTTP.
func BenchmarkUpload(b *testing.B) {
	b.Run("handler", func(b *testing.B) { benchmarkUpload(b, false, "sha256") })
	b.Run("handler crc32c", func(b *testing.B) { benchmarkUpload(b, false, "crc32c") })
	b.Run("http", func(b *testing.B) { benchmarkUpload(b, true, "sha256") })
	b.Run("http crc32c", func(b *testing.B) { benchmarkUpload(b, true, "crc32c") })
}

// BenchmarkModify is a single-record call over HTTP.
func BenchmarkModify(b *testing.B) {
	sim := dialersim.New(dialersim.Options{})
	sim.SetAccount("1001", dialersim.AccountSettings{Limits: map[string]map[int]int64{"*": {60: 0, 3600: 0, 86400: 0}}})
	for i := 0; b.Loop(); i++ {
		req := httptest.NewRequest(http.MethodPut, fmt.Sprintf("/lists/demo/records/%d", i),
			bytes.NewReader([]byte(`{"state":"done"}`)))
		req.SetBasicAuth("1001", "x")
		res := httptest.NewRecorder()
		if sim.ServeHTTP(res, req); res.Code != http.StatusOK {
			b.Fatal(res.Code, res.Body.String())
		}
	}
}
