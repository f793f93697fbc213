package flowlane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestVerifyWebhook(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	at := time.Unix(1614265330, 0)
	body := []byte(`{"test": 2432232314}`)
	header := http.Header{}
	if err := SignWebhook(header, secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body); err != nil {
		t.Fatal(err)
	}
	// The example of the Standard Webhooks libraries.
	if got := header.Get("Webhook-Signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature: %s", got)
	}
	header.Set("Webhook-Signature", "v1,AAAA "+header.Get("Webhook-Signature"))
	for name, c := range map[string]struct {
		secret string
		now    time.Time
		body   string
		want   error
	}{
		"Good":        {secret, at.Add(tolerance), string(body), nil},
		"Old":         {secret, at.Add(tolerance + time.Second), string(body), ErrSignature},
		"Ahead":       {secret, at.Add(-tolerance - time.Second), string(body), ErrSignature},
		"Tampered":    {secret, at, "{}", ErrSignature},
		"OtherSecret": {"whsec_AAAA", at, string(body), ErrSignature},
		"NoSecret":    {"", at, string(body), ErrSignature},
	} {
		if err := VerifyWebhook(header, c.secret, c.now, []byte(c.body)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReaders(t *testing.T) {
	t.Parallel()
	read := func(records iter.Seq2[json.RawMessage, error]) (out string) {
		for r, err := range records {
			if err != nil {
				return out + "!"
			}
			out += string(r)
		}
		return out
	}
	for want, records := range map[string]iter.Seq2[json.RawMessage, error]{
		`{"n":12345678901234567890}{"b":1}`: NDJSON(strings.NewReader("{\"n\":12345678901234567890}\n\n{\"b\":1}")),
		`{"a":"1","b":"x,\ny"}`:             CSV(strings.NewReader("a,b\r\n1,\"x,\ny\"\r\n")),
		`{"a":"1"}!`:                        CSV(strings.NewReader("a\n1\n1,2\n")),
		``:                                  CSV(strings.NewReader("")),
		`{"id":"1"}`:                        CSV(strings.NewReader("\ufeffid\n1\n")),
		`!`:                                 CSV(strings.NewReader("a,,\n1,2,3\n")),
	} {
		if got := read(records); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestUpload_RefusesOtherEncodings: a file of Windows-1252 is refused with the line to look at, and nothing is sealed.
func TestUpload_RefusesOtherEncodings(t *testing.T) {
	t.Parallel()
	const advice = ` is not UTF-8: save the file as UTF-8 (in Excel: "CSV UTF-8")`
	for want, records := range map[string]iter.Seq2[json.RawMessage, error]{
		"csv: line 1" + advice:    CSV(strings.NewReader("Stra\xdfe\n1\n")),
		"csv: line 3" + advice:    CSV(strings.NewReader("name\nA\nM\xfcller\n")),
		"csv: line 4" + advice:    CSV(strings.NewReader("id,name\n1,A\n2,\"\ufffd\nM\xfcller\nB\"\n")),
		"ndjson: line 3" + advice: NDJSON(strings.NewReader("{}\n\n{\"name\":\"M\xfcller\"}\n")),
	} {
		var sent []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = append(sent, r.Method+" "+r.URL.Path)
			_, _ = io.WriteString(w, `{"id":"s"}`)
		}))
		_, err := (&Client{URL: server.URL}).Upload(t.Context(), records, UploadOptions{})
		server.Close()
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if last := sent[len(sent)-1]; last != "DELETE /v1/data/record-sets/s" {
			t.Errorf("%s: requests: %q", want, sent)
		}
	}
}

// TestUpload_CleansUpOnce: the set of a failed upload is deleted also when the context is over, in one attempt that ends.
func TestUpload_CleansUpOnce(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"Hangs": true, "Busy": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var deletions atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodDelete:
					deletions.Add(1)
					if hangs {
						<-r.Context().Done()
					}
					w.WriteHeader(http.StatusServiceUnavailable)
				case strings.HasSuffix(r.URL.Path, "/records"):
					cancel()
				default:
					_, _ = io.WriteString(w, `{"id":"s"}`)
				}
			}))
			defer server.Close()
			client := &Client{URL: server.URL, Backoff: time.Microsecond}
			if hangs {
				client.longestCleanUp = 100 * time.Millisecond
			}
			failed := make(chan error, 1)
			go func() {
				_, err := client.Upload(ctx, Records(1), UploadOptions{})
				failed <- err
			}()
			select {
			case err := <-failed:
				if !errors.Is(err, context.Canceled) || deletions.Load() != 1 {
					t.Errorf("%d deletions: %v", deletions.Load(), err)
				}
			case <-time.After(10 * time.Second):
				server.CloseClientConnections()
				t.Error("the upload did not end")
			}
		})
	}
}

func TestAllBatches(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cursor := r.URL.Query().Get("cursor")
		if cursor == "bad" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w,
				`{"detail":[{"loc":["query","cursor"],"msg":"is bad","type":"t"}],"code":"validation_failed","request_id":"r"}`)
			return
		}
		next := map[string]string{"": `"x"`, "x": `"bad"`}[cursor]
		_, _ = fmt.Fprintf(w, `{"items":[{"id":%q}],"next_cursor":%s}`, r.URL.Query().Get("status")+cursor, next)
	}))
	defer server.Close()
	c := &Client{URL: server.URL}
	var seen []string
	for batch, err := range c.AllBatches(t.Context(), &ListBatchesParams{Status: Ptr(BatchStatusFailed)}) {
		if err == nil {
			seen = append(seen, batch.ID)
			continue
		}
		var refused *APIError
		if !errors.As(err, &refused) || refused.Code != "validation_failed" || refused.RequestID != "r" ||
			len(refused.Fields) != 1 {
			t.Errorf("error: %#v", err)
		}
		seen = append(seen, err.Error())
	}
	if want := []string{"failed", "failedx", "422: query.cursor: is bad"}; !slices.Equal(seen, want) {
		t.Errorf("seen: %q", seen)
	}
}

func TestNullable(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]EventSubscriptionUpdate{
		`{}`:                           {},
		`{"filter":null}`:              {Filter: Null[string]()},
		`{"filter":""}`:                {Filter: Set("")},
		`{"input_template":{}}`:        {InputTemplate: Set(FreeObject{})},
		`{"input_template":{"a":"b"}}`: {InputTemplate: Set(FreeObject{"a": "b"})},
	} {
		var read EventSubscriptionUpdate
		if err := json.Unmarshal([]byte(want), &read); err != nil {
			t.Fatal(err)
		}
		for _, c := range []EventSubscriptionUpdate{change, read} {
			if got, err := json.Marshal(c); err != nil || string(got) != want {
				t.Errorf("got %s, want %s: %v", got, want, err)
			}
		}
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		call   func(ctx context.Context, flow *Client) error
		times  int
		key    string // that all requests have, "made" for one that the client made
	}{
		"Read":    {502, func(ctx context.Context, f *Client) error { _, err := f.GetMe(ctx); return err }, 3, ""},
		"Refused": {500, func(ctx context.Context, f *Client) error { _, err := f.GetMe(ctx); return err }, 1, ""},
		"Keyed": {503, func(ctx context.Context, f *Client) error {
			_, err := f.RetryBatch(ctx, "b",
				nil)
			return err
		}, 3, "made"},
		"Chosen": {503, func(ctx context.Context, f *Client) error {
			_, err := f.RetryBatch(WithIdempotencyKey(ctx, "mine"), "b", nil)
			return err
		}, 3, "mine"},
		"NotRepeatable": {502, func(ctx context.Context, f *Client) error {
			_, err := f.CreateApiKey(WithIdempotencyKey(ctx, "mine"), &ApiKeyCreate{Name: "n"})
			return err
		}, 1, ""},
		"Limited": {429, func(ctx context.Context, f *Client) error {
			_, err := f.CreateApiKey(ctx, &ApiKeyCreate{Name: "n"})
			return err
		}, 3, ""},
		"Stream": {503, func(ctx context.Context, f *Client) (err error) {
			for _, err = range f.Follow(ctx, "e", "") {
				continue
			}
			return err
		}, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := map[string]int{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				keys[r.Header.Get("Idempotency-Key")]++
				w.WriteHeader(c.status)
			}))
			defer server.Close()
			err := c.call(t.Context(), &Client{URL: server.URL, Retries: 2, Backoff: time.Microsecond})
			var refused *APIError
			if !errors.As(err, &refused) || refused.Status != c.status {
				t.Errorf("error: %v", err)
			}
			times, known := keys[c.key]
			for key, n := range keys {
				if c.key == "made" && key != "" {
					times, known = n, true
				}
			}
			if len(keys) != 1 || !known || times != c.times {
				t.Errorf("requests by key: %v", keys)
			}
		})
	}
}

// TestFollow_ServerFails follows on a service that fails on purpose.
func TestFollow_ServerFails(t *testing.T) {
	t.Parallel()
	const (
		first = "id: 1\nevent: execution.snapshot\ndata: {}\n\n"
		last  = "id: 2\nevent: execution.closed\ndata: {}\n\n"
	)
	for name, c := range map[string]struct {
		answer func(n int) (status int, text string)
		hangs  bool
		opened int
		events string
		fails  string
	}{
		"CutForGood": {func(n int) (int, string) { return 200, []string{first, ""}[min(n, 1)] }, false, 3,
			"1", "follow: cut off: "},
		"SilentForGood": {func(n int) (int, string) { return 200, []string{first, ""}[min(n, 1)] }, true, 3,
			"1", "cut off: nothing came for 500ms"},
		"CutWhileNothingHappens": {func(n int) (int, string) { return 200, []string{":\n\n", last}[n/9] }, false, 10,
			"2", ""},
		"RefusedLater": {func(n int) (int, string) { return []int{200, 404}[n], first }, false, 2, "1",
			"404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = io.WriteString(w, `{"token":"t"}`)
					return
				}
				status, text := c.answer(opened)
				opened++
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
				if c.hangs {
					<-r.Context().Done()
				}
			}))
			defer server.Close()
			client := &Client{URL: server.URL, Retries: 2, Backoff: time.Microsecond}
			if c.hangs {
				client.longestSilence = 500 * time.Millisecond
			}
			var events string
			var failed error
			for event, err := range client.Follow(t.Context(), "e", "") {
				if events, failed = events+event.ID, err; err != nil {
					break
				}
			}
			if (failed == nil) != (c.fails == "") || failed != nil && !strings.Contains(failed.Error(), c.fails) {
				t.Errorf("error: %v", failed)
			}
			if events != c.events || opened != c.opened {
				t.Errorf("events %q of %d streams", events, opened)
			}
		})
	}
}
