package cli_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
	"flowlane/test/webhooktest"
)

// most is how much more memory a server may take while it is sent hostile bodies, one after another.
const most = 64 << 20

// TestWebhook_Memory sends every hostile body to a server and measures the most memory that it ever had meanwhile.
func TestWebhook_Memory(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var at urlFacts
	server := launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	client := apitest.NewClient(t, at.URL, key.Key)
	flow := client.Do(http.MethodPost, "/flows/definitions",
		`{"name":"f","status":"active","steps":[{"id":"s","tasks":[{"id":"t",
		"action_id":"core__flow__transform","params":{"value":"{{ input.order }}"}}]}]}`).Want(
		http.StatusCreated).JSON()["id"]
	hook := client.Do(http.MethodPost, "/flows/webhooks",
		fmt.Sprintf(`{"definition_id":%q,"description":"d","rate_limit":1000000}`, flow)).
		Want(http.StatusCreated).JSON()
	secret, address := hook["signing_secret"].(string), hook["receive_url"].(string)

	var first sent
	output(t, append(env, "FLOWLANE_WEBHOOK_SECRET="+secret, "FLOWLANE_URL="+at.URL), &first, "webhook", "send",
		"--url", address, "--id", "first", testFile(t, "a.json", `{"order":1}`))
	if first.Status != http.StatusAccepted || first.DeliveryID == "" || first.MessageID != "first" {
		t.Errorf("the first delivery: %+v", first)
	}
	send := func(id string, b webhooktest.Body) int {
		now := time.Now()
		signature, err := webhook.Sign(secret, id, now, []byte(b.Text))
		if err != nil {
			t.Fatal(err)
		}
		return client.As("").Do(http.MethodPost, address, b.Text, "Content-Type", b.ContentType, "webhook-id", id,
			"webhook-timestamp", strconv.FormatInt(now.Unix(), 10), "webhook-signature", signature).Status
	}
	// What a server has that has worked for a while: the largest body that is nothing but large.
	plain := webhooktest.Body{ContentType: "text/plain", Text: strings.Repeat("x", webhook.MaxBody)}
	for i := range 20 {
		send("plain"+strconv.Itoa(i), plain)
	}
	dispatched(t, client, hook["id"].(string), 21)
	before := peak(t, server.Process.Pid)
	n := 21
	for i, b := range webhooktest.Hostile() {
		switch status := send(strconv.Itoa(i), b); {
		case len(b.Text) > webhook.MaxBody && status == http.StatusRequestEntityTooLarge:
		case status == http.StatusAccepted:
			n++
			dispatched(t, client, hook["id"].(string), n)
		default:
			t.Errorf("%s: %d", b.Name, status)
		}
	}
	after := peak(t, server.Process.Pid)
	t.Logf("%d MiB before, %d MiB after", before>>20, after>>20)
	if after-before > most {
		t.Errorf("the server took %d bytes more", after-before)
	}
}

// dispatched waits until so many deliveries of a webhook have started their batches.
func dispatched(t *testing.T, client *apitest.Client, hook string, n int) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for ; ; <-look.C {
		total := client.Do(http.MethodGet, "/flows/webhooks/"+hook+"/deliveries?status=dispatched&limit=1",
			nil).Want(http.StatusOK).JSON()["total"]
		if total == float64(n) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v of %d deliveries are dispatched", total, n)
		}
	}
}

// peak returns the most memory that a process ever had in use, in bytes.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("not tested: this system does not say how much memory a process has: %v", err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
