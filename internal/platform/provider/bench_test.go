package provider

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// BenchmarkSend compares small calls with a bare RoundTrip of net/http on the same machine.
func BenchmarkSend(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer srv.Close()
	payload := []byte(`{"id":1,"name":"x"}`)
	b.Run("sender", func(b *testing.B) {
		s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)}})
		defer s.Close()
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				at := time.Now().Add(time.Minute)
				ans := s.Send(b.Context(), Request{Method: "POST", URL: srv.URL, Body: [][]byte{payload},
					SendBefore: at, AnswerBefore: at})
				if ans.Sent != Answered {
					b.Error(ans.Err)
				}
			}
		})
	})
	b.Run("bare", func(b *testing.B) {
		t := &http.Transport{MaxIdleConnsPerHost: 128}
		defer t.CloseIdleConnections()
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				req, _ := http.NewRequestWithContext(b.Context(), "POST", srv.URL, &body{parts: [][]byte{payload},
					g: &guard{now: time.Now}})
				req.ContentLength = int64(len(payload))
				resp, err := t.RoundTrip(req)
				if err != nil {
					b.Error(err)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	})
}
