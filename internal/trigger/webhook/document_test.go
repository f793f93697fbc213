package webhook_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"flowlane/internal/trigger/webhook"
)

var codeBlock = regexp.MustCompile("(?s)\n```(\\w+)\n(.*?)```\n")

// senders is how the programs of docs/webhooks.md are run.
var senders = map[string]struct {
	needs []string
	file  string
	run   []string
}{
	"sh":     {[]string{"sh", "curl", "openssl", "od"}, "send.sh", []string{"sh", "-eu"}},
	"js":     {[]string{"node"}, "send.mjs", []string{"node"}},
	"python": {[]string{"python3"}, "send.py", []string{"python3"}},
	"go":     {[]string{"go"}, "send.go", []string{"go", "run"}},
}

// TestDocument_Senders runs every program of docs/webhooks.md as it stands there.
func TestDocument_Senders(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	// what stands before is typed in with the other pages
	_, programs, ok := bytes.Cut(document, []byte("\n### curl\n"))
	if !ok {
		t.Fatal("the senders are not found")
	}
	found := map[string]bool{}
	for _, block := range codeBlock.FindAllSubmatch(programs, -1) {
		language, text := string(block[1]), block[2]
		sender, ok := senders[language]
		if !ok || found[language] {
			t.Fatalf("there is a block of %s that no test knows", language)
		}
		found[language] = true
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			for _, program := range sender.needs {
				if _, err := exec.LookPath(program); err == nil {
					continue
				}
				if program == "node" && os.Getenv("CI") != "" {
					t.Fatal("install Node")
				}
				t.Skipf("not tested: %s is not installed", program)
			}
			file := filepath.Join(t.TempDir(), sender.file)
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			runSender(t, append(sender.run, file))
		})
	}
	if len(found) != len(senders) {
		t.Errorf("of the senders there are %v", found)
	}
}

// runSender runs a program against a receiver that takes what it sends only if it is signed as it must be.
func runSender(t *testing.T, run []string) {
	t.Helper()
	key := secret(t)
	var mu sync.Mutex
	var arrived []string
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.Verify([]string{key}, r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"),
				r.Header.Get("webhook-signature"), body, time.Now())
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/hook" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		arrived = append(arrived, r.Header.Get("webhook-id")+" "+string(webhook.Payload(r.Header.Get("Content-Type"),
			r.Header.Get("Content-Encoding"), body)))
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"delivery_id":"d-1"}`))
	}))
	defer front.Close()
	cmd := exec.CommandContext(t.Context(), run[0], run[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "WEBHOOK_URL="+front.URL+"/v1/hook", "WEBHOOK_SECRET="+key, "NO_PROXY=*")
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), `{"delivery_id":"d-1"}`) {
		t.Errorf("%v: %s", err, text)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(arrived) != 1 {
		t.Fatalf("%d deliveries arrived", len(arrived))
	}
	id, payload, _ := strings.Cut(arrived[0], " ")
	var order struct {
		Order int
		Total float64
	}
	if err := json.Unmarshal([]byte(payload), &order); err != nil || id != "order-17" || order.Order != 17 ||
		order.Total != 12.5 {
		t.Errorf("%q arrived: %v", arrived[0], err)
	}
}
