package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flowlane/internal/trigger/webhook"
)

// arrived is a delivery that came to a receiver.
type arrived struct {
	path, id, contentType, body string
	err                         error
}

// receiver takes deliveries of one secret. Its answers are given in order, the last one to all that follow.
type receiver struct {
	*httptest.Server

	mu      sync.Mutex
	arrived []arrived
}

func receive(t *testing.T, secret string, answers ...http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			h := req.Header
			err = webhook.Verify([]string{secret}, h.Get("webhook-id"), h.Get("webhook-timestamp"),
				h.Get("webhook-signature"), body, time.Now())
		}
		r.mu.Lock()
		answer := answers[min(len(r.arrived), len(answers)-1)]
		r.arrived = append(r.arrived, arrived{req.URL.Path, req.Header.Get("webhook-id"),
			req.Header.Get("Content-Type"), string(body), err})
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []arrived {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrived)
}

func answer(status int, text string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func testSecret(t *testing.T) string {
	t.Helper()
	secret, err := webhook.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func testFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type sent struct {
	Status     int    `json:"status"`
	DeliveryID string `json:"delivery_id"`
	MessageID  string `json:"webhook_message_id"`
	Attempts   int    `json:"attempts"`
}

func TestWebhook_SendUntilTaken(t *testing.T) {
	t.Parallel()
	secret := testSecret(t)
	r := receive(t, secret, answer(500, `{"detail":"Internal server error"}`), cut,
		answer(429, `{"detail":"Rate limit exceeded: 1 per 1 minute"}`, "Retry-After", "1"),
		answer(202, `{"delivery_id":"d1"}`))
	file := testFile(t, "order.xml", "<a>\xff</a>")
	var got sent
	env := []string{"FLOWLANE_WEBHOOK_SECRET=" + secret}
	output(t, env, &got, "webhook", "send", "--url", r.URL+"/hook", file)
	all := r.all()
	if len(all) != 4 || got != (sent{202, "d1", all[0].id, 4}) {
		t.Errorf("%+v after %d arrivals", got, len(all))
	}
	for _, a := range all {
		if a != (arrived{path: "/hook", id: got.MessageID, contentType: "application/xml", body: "<a>\xff</a>"}) {
			t.Errorf("%+v arrived", a)
		}
	}
}

// TestWebhook_Send: secrets from a file and from a variable, standard input, an id and a receive_url of one's own.
func TestWebhook_Send(t *testing.T) {
	t.Parallel()
	secret := testSecret(t)
	r := receive(t, secret, answer(202, `{"delivery_id":"d1"}`))
	var first, second sent
	output(t, []string{"FLOWLANE_URL=" + r.URL}, &first, "webhook", "send", "--url", "/flows/webhooks/standard/1f",
		"--secret-file", testFile(t, "secret", secret+"\n"),
		testFile(t, "data.bin", ""))
	output(t, []string{"MY_SECRET=" + secret}, &second, "webhook", "send", "--url", r.URL+"/x", "--secret-env",
		"MY_SECRET", "--id", "m-1", "--content-type", "text/csv",
		testFile(t, "rows.json", "a,b"))
	cmd := program(t, []string{"FLOWLANE_WEBHOOK_SECRET=" + secret, "FLOWLANE_URL=" + r.URL + "/v1/"}, "webhook",
		"send", "--url", "/flows/webhooks/standard/2f", "--id", "m-2", "-")
	cmd.Stdin = strings.NewReader("{}")
	text, err := cmd.CombinedOutput()
	if err != nil || string(text) != "202: delivery d1 of m-2\n" {
		t.Errorf("from standard input: %s, %v", text, err)
	}
	want := []arrived{
		{path: "/v1/flows/webhooks/standard/1f", id: first.MessageID, contentType: "application/octet-stream"},
		{path: "/x", id: "m-1", contentType: "text/csv", body: "a,b"},
		{path: "/v1/flows/webhooks/standard/2f", id: "m-2", contentType: "application/json", body: "{}"},
	}
	if all := r.all(); !slices.Equal(all, want) || first.Attempts != 1 || second.MessageID != "m-1" ||
		len(first.MessageID) < 20 {
		t.Errorf("%+v arrived, want %+v; %+v, %+v", all, want, first, second)
	}
}

// TestWebhook_SendFails: what is refused is not sent again, and no message shows the secret.
func TestWebhook_SendFails(t *testing.T) {
	t.Parallel()
	secret := testSecret(t)
	file := testFile(t, "a.json", "{}")
	moved := receive(t, secret, answer(307, "", "Location", "/elsewhere"))
	refusing := receive(t, secret, answer(401, `{"detail":"Signature verification failed"}`))
	set := []string{"FLOWLANE_WEBHOOK_SECRET=" + secret}
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"Refused":     {set, []string{"--url", refusing.URL, file}, 4, "answered 401: Signature verification failed"},
		"Moved":       {set, []string{"--url", moved.URL, file}, 1, "answered 307"},
		"NoSecret":    {nil, []string{"--url", refusing.URL, file}, 1, "set FLOWLANE_WEBHOOK_SECRET"},
		"SecretNamed": {nil, []string{"--url", refusing.URL, "--secret-env", secret, file}, 1, "not the secret itself"},
		"BadSecret": {[]string{"FLOWLANE_WEBHOOK_SECRET=" + secret + "!"}, []string{"--url", refusing.URL, file}, 1,
			"whsec_ and then its bytes in base64"},
		"TwoSecrets": {set, []string{"--url", refusing.URL, "--secret-env", "A", "--secret-file", file, file}, 2,
			"can't be used together"},
		"NoServer":  {set, []string{"--url", "/flows/webhooks/standard/1", file}, 1, "set FLOWLANE_URL"},
		"NoAddress": {set, []string{"--url", "ftp://x", file}, 1, "is no address"},
		"BadID":     {set, []string{"--url", refusing.URL, "--id", "a.b", file}, 1, "without a full stop"},
		"NoFile":    {set, []string{"--url", refusing.URL, file + "x"}, 1, "no such file"},
		"TooLarge": {set, []string{"--url", refusing.URL, testFile(t, "large", strings.Repeat("x", webhook.MaxBody+
			1))}, 1, "larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			code, says := fails(t, c.env, append([]string{"webhook", "send"}, c.args...)...)
			if code != c.code || !strings.Contains(says, c.says) {
				t.Errorf("exit code %d: %s", code, says)
			}
			if key := strings.TrimPrefix(secret, "whsec_"); strings.Contains(says, key) {
				t.Errorf("the secret is shown: %s", says)
			}
		})
	}
	if a, b := refusing.all(), moved.all(); len(a) != 1 || len(b) != 1 {
		t.Errorf("%d and %d arrivals", len(a), len(b))
	}
}
