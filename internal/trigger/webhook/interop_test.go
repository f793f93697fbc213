package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/servers"
)

// exchanged is a delivery between two implementations.
type exchanged struct {
	Secret    string `json:"secret"`
	ID        string `json:"id"`
	Timestamp string `json:"timestamp"`
	Body      string `json:"body"`
	Signature string `json:"signature"`
}

// exchange is deliveries of many kinds, signed by nobody yet. Their bodies are text, because that of Node takes nothing
// else.
func exchange(t *testing.T, now time.Time) []exchanged {
	t.Helper()
	bodies := []string{"", "{}", vectorBody, "{\n \"é\": \"😀\"}\r\n", strings.Repeat("0123456789", 10_000), "a=1&b=%00",
		"<a>.</a>", ".", "1.2.3"}
	out := make([]exchanged, 0, 3*len(bodies))
	for i, body := range bodies {
		for k, id := range []string{vectorID, "m", strings.Repeat("~", 256)} {
			at := now.Add(time.Duration(i*k) * time.Second)
			out = append(out, exchanged{Secret: secret(t), ID: id, Timestamp: strconv.FormatInt(at.Unix(), 10),
				Body: body})
		}
	}
	return out
}

func (x *exchanged) at(t *testing.T) time.Time {
	t.Helper()
	seconds, err := strconv.ParseInt(x.Timestamp, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(seconds, 0)
}

func (x *exchanged) header() http.Header {
	return http.Header{"Webhook-Id": {x.ID}, "Webhook-Timestamp": {x.Timestamp}, "Webhook-Signature": {x.Signature}}
}

// forged is the delivery with one bit of each of its parts changed.
func (x *exchanged) forged() []exchanged {
	flip := func(s string) string {
		if s == "" {
			return "x"
		}
		text := []byte(s)
		text[len(text)/2] ^= 1
		return string(text)
	}
	var out []exchanged
	for _, part := range []func(*exchanged) *string{
		func(f *exchanged) *string { return &f.ID }, func(f *exchanged) *string { return &f.Timestamp },
		func(f *exchanged) *string { return &f.Body }, func(f *exchanged) *string { return &f.Signature },
	} {
		f := *x
		*part(&f) = flip(*part(&f))
		out = append(out, f)
	}
	return out
}

// wantVerified holds Verify to what another implementation signed.
func wantVerified(t *testing.T, x exchanged, now time.Time) {
	t.Helper()
	if err := webhook.Verify([]string{x.Secret}, x.ID, x.Timestamp, x.Signature, []byte(x.Body), now); err != nil {
		t.Errorf("%.300v is refused: %v", x, err)
	}
	for _, f := range x.forged() {
		if err := webhook.Verify([]string{x.Secret}, f.ID, f.Timestamp, f.Signature, []byte(f.Body), now); err != webhook.ErrSignature { //nolint:errorlint // the very value
			t.Errorf("forged, %.300v: %v", f, err)
		}
	}
}

// TestInterop_Go: what the Go library of Standard Webhooks signs is verified, and what is signed here it verifies.
func TestInterop_Go(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, x := range exchange(t, now) {
		other, err := standardwebhooks.NewWebhook(x.Secret)
		if err != nil {
			t.Fatal(err)
		}
		if x.Signature, err = other.Sign(x.ID, x.at(t), []byte(x.Body)); err != nil {
			t.Fatal(err)
		}
		wantVerified(t, x, now)
		x.Signature = "v1,AAAA " + sign(t, x.Secret, x.ID, x.at(t), x.Body)
		if err := other.Verify([]byte(x.Body), x.header()); err != nil {
			t.Errorf("%.300v is refused there: %v", x, err)
		}
		for _, f := range x.forged()[:3] {
			if other.Verify([]byte(f.Body), f.header()) == nil {
				t.Errorf("%.300v passes there, forged", f)
			}
		}
	}
}

// interopJS signs deliveries with the npm package, and verifies those that are signed.
const interopJS = `
const { Webhook } = require("standardwebhooks");
const out = JSON.parse(require("fs").readFileSync(0, "utf8")).map((x) => {
  const w = new Webhook(x.secret);
  const signature = w.sign(x.id, new Date(x.timestamp * 1000), x.body);
  let verdict = "verified";
  try {
    w.verify(x.body, { "webhook-id": x.id, "webhook-timestamp": x.timestamp, "webhook-signature": x.signature });
  } catch (e) {
    // It also parses what it has verified.
    if (!(e instanceof SyntaxError)) verdict = e.message;
  }
  return { signature, verdict };
});
process.stdout.write(JSON.stringify(out));`

// TestInterop_Node is the same with the npm package. It needs what npm ci installs in sdk/typescript; with CI set the
// lack of it is a failure.
func TestInterop_Node(t *testing.T) {
	t.Parallel()
	packages, err := filepath.Abs("../../../sdk/typescript")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(packages, "node_modules", "standardwebhooks")); err != nil {
		servers.Missing(t, "run `npm ci` in sdk/typescript, or `make generate`, first")
	}
	now := time.Now()
	good := exchange(t, now)
	asked := make([]exchanged, 0, 4*len(good))
	for i := range good {
		good[i].Signature = sign(t, good[i].Secret, good[i].ID, good[i].at(t), good[i].Body)
		asked = append(append(asked, good[i]), good[i].forged()[:3]...)
	}
	var answers []struct{ Signature, Verdict string }
	node(t, packages, interopJS, asked, &answers)
	if len(answers) != len(asked) {
		t.Fatalf("%d answers for %d deliveries", len(answers), len(asked))
	}
	for i, a := range answers {
		x := asked[i]
		if genuine := i%4 == 0; genuine != (a.Verdict == "verified") {
			t.Errorf("%.300v, genuine: %t: the other side says %q", x, genuine, a.Verdict)
		}
		if i%4 == 0 {
			x.Signature = a.Signature
			wantVerified(t, x, now)
		}
	}
}

// node runs a script with JSON as its input and its output.
func node(t *testing.T, dir, script string, in, out any) {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-e", script)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if text, err = cmd.Output(); err != nil {
		t.Fatal(fmt.Errorf("node: %w: %s", err, stderr.String()))
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%.300s: %v", text, err)
	}
}
