package dispatch_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
)

func asIs(*catalog.Catalog) {}

// post is a flow of one HTTP request to an address, with settings of its task.
func post(url, settings string) string {
	return fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"method":"POST","url":%q,"body":"{{ input }}"}%s}]}]`, url, settings)
}

// dropped is an address that answers no attempt to connect: its line of waiting connections is full.
func dropped(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for {
		c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
}

// silent is an address that accepts connections and never says anything.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	return ln.Addr().String()
}

// failure returns how many calls were made, and what the only record of a batch failed of.
func (b *bundle) failure(id string) (calls int, code, message string) {
	b.t.Helper()
	var raw []byte
	if err := b.pool.QueryRow(b.t.Context(), "SELECT error FROM flow.job WHERE batch_id = $1",
		id).Scan(&raw); err != nil {
		b.t.Fatal(err)
	}
	var e batch.JobError
	if err := json.Unmarshal(raw, &e); err != nil {
		b.t.Fatal(err)
	}
	return b.count("SELECT count(*) FROM flow.call"), e.Code, e.Message
}

// A receiver that cannot be reached in time is tried as often as the task's retry policy says, whatever it was that
// took the time.
func TestTimeoutBeforeSendingIsAnAttempt(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(*testing.T) string{
		"connect": func(t *testing.T) string { return "http://" + dropped(t) },
		"tls":     func(t *testing.T) string { return "https://" + silent(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := address(t)
			b := setupSender(t, dispatch.Options{}, asIs,
				provider.Options{AllowHosts: []string{url[strings.Index(url, "//")+2:]}})
			id := b.start(b.define(post(url, `,"timeout_seconds":1,"retry":{"max_attempts":2,"initial_seconds":0.1}`)),
				1, plainRow)
			if status, counts := b.await(id); status != batch.BatchFailed || counts.Failed != 1 {
				t.Fatalf("batch ended %s with %+v", status, counts)
			}
			if calls, code, message := b.failure(id.String()); calls != 2 || code != "provider_unreachable" ||
				message != "The provider cannot be reached in time" {
				t.Errorf("after %d calls: %s: %s", calls, code, message)
			}
		})
	}
}

// The same for the token that a call must carry.
func TestTimeoutOfATokenIsAnAttempt(t *testing.T) {
	t.Parallel()
	issuer, api := silent(t), httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("a call without a token arrived")
	}))
	t.Cleanup(api.Close)
	b := setupSender(t, dispatch.Options{}, asIs, provider.Options{AllowHosts: []string{issuer,
		strings.TrimPrefix(api.URL, "http://")}})
	b.client("http://"+issuer, api.URL)
	id := b.start(b.define(post(api.URL,
		`,"credential_id":"CRED","timeout_seconds":1,"retry":{"max_attempts":2,"initial_seconds":0.1}`)), 1, plainRow)
	if status, counts := b.await(id); status != batch.BatchFailed || counts.Failed != 1 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	if calls, code, _ := b.failure(id.String()); calls != 2 || code != "provider_unreachable" {
		t.Errorf("after %d calls: %s", calls, code)
	}
}

// client has the bundle use a credential whose tokens come from an issuer, and go to an API.
func (b *bundle) client(issuer, api string) {
	b.t.Helper()
	b.cred = must(b.creds.Create(b.t.Context(), b.org, "test", credential.Input{Name: "app", PlatformID: "core",
		AuthMethod: "oauth2",
		Unverified: true, TokenURL: ref(issuer + "/token"), Origins: []string{api},
		Secret: []byte(`{"client_id":"app","client_secret":"x"}`)})).ID
}

// Where it takes longer to write a call down than it may last, its records do not go round for ever.
func TestClaimThatTakesLongerThanItsCalls(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("a call arrived after its time")
	}))
	t.Cleanup(receiver.Close)
	b := setupSender(t, dispatch.Options{}, asIs, provider.Options{AllowHosts: []string{strings.TrimPrefix(receiver.URL,
		"http://")}})
	b.exec(
		"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.1); RETURN NEW; END $$",
		"CREATE TRIGGER slow BEFORE INSERT ON flow.call FOR EACH ROW EXECUTE FUNCTION slow()")
	id := b.start(b.define(post(receiver.URL, `,"timeout_seconds":1,"retry":{"max_attempts":2,"initial_seconds":0.1}`)),
		1, plainRow)
	if status, counts := b.await(id); status != batch.BatchFailed || counts.Failed != 1 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	want := "The call was not sent in time: to write it down took longer than the 1s that it may take; a longer timeout_seconds would help"
	if calls, code, message := b.failure(id.String()); calls != 2 || code != "call_too_late" || message != want {
		t.Errorf("after %d calls: %s: %s", calls, code, message)
	}
}

// A receiver that nobody meters and that names no time is left alone for a second, then for twice as long each time,
// until it takes a call.
func TestRateLimitWithoutATime(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1, 2, 4:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(receiver.Close)
	b := setupSender(t, dispatch.Options{}, asIs, provider.Options{AllowHosts: []string{strings.TrimPrefix(receiver.URL,
		"http://")}})
	flow := b.define(post(receiver.URL, ""))
	for range 2 {
		if status, counts := b.await(b.start(flow, 1, plainRow)); status != batch.BatchCompleted {
			t.Fatalf("batch ended %s with %+v", status, counts)
		}
	}
	rows, err := b.pool.Query(t.Context(),
		"SELECT expires_at - created_at FROM flow.pause WHERE scope = 'bucket' ORDER BY created_at")
	if err != nil {
		t.Fatal(err)
	}
	waits := must(pgx.CollectRows(rows, pgx.RowTo[time.Duration]))
	if len(waits) != 3 {
		t.Fatalf("the budget was closed for %s; want three times", waits)
	}
	for i, most := range []time.Duration{time.Second, 2 * time.Second, time.Second} {
		if waits[i] < most/4 || waits[i] > most { // half of it at least, from a little before the row was written
			t.Errorf("wait %d was %s; want half of %s to all of it", i, waits[i], most)
		}
	}
}

// Calls that went out together are refused together, which is one refusal; others than those that were under way count
// anew.
func TestRateLimitOfManyCalls(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) <= 20 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(receiver.Close)
	b := setupSender(t, dispatch.Options{}, asIs, provider.Options{AllowHosts: []string{strings.TrimPrefix(receiver.URL,
		"http://")}})
	if status, counts := b.await(b.start(b.define(post(receiver.URL, "")), 20,
		plainRow)); status != batch.BatchCompleted {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	if n := b.count("SELECT count(*) FROM flow.pause WHERE scope = 'bucket'"); n != 1 {
		t.Errorf("the budget was closed %d times, want once", n)
	}
	if n := b.count("SELECT max(refusals) FROM flow.budget"); n != 0 {
		t.Errorf("%d refusals are remembered after a success", n)
	}
}
