package cells_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// moveRecords is how many records the batch has that runs during the move, moveTakes the time over which they spread.
// Between two of them no call is under way: a move that forgot to pause the batch would not notice, and one that is over
// before the organization is copied would have nothing to repeat.
const (
	moveRecords = 1500
	moveTakes   = 45 * time.Second
)

// receiver counts the records that it is sent.
type receiver struct {
	*httptest.Server

	mu   sync.Mutex
	seen map[string]int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{seen: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.seen[string(body)]++
		r.mu.Unlock()
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// until waits until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(90 * time.Second); !so(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not so in time: %s", what)
		}
	}
}

// TestMove: an organization goes to another cell in the middle of a batch, while webhooks come. Each record is sent
// once, each message that was acknowledged is delivered once, and keys and addresses stay good.
func TestMove(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	old := newCell(t, 1, "FLOWLANE_ALLOW_HOSTS="+strings.TrimPrefix(r.URL, "http://"))
	now := newCellBeside(old, 0)
	p := newProxy(t, now, old)
	o := old.newOrg("Acme")
	host := []string{"Host", commonHost}
	c := p.client(o.key)

	var made struct {
		ID string
	}
	flow := func(body string) string {
		return fmt.Sprintf(`{"name":"send","status":"active","steps":[{"id":"d","tasks":[{"id":"d",
			"action_id":"core__flow__delay","params":{"seconds":"{{ input.after }}"}}]},{"id":"s","tasks":[{"id":"t",
			"action_id":"core__http__request","params":{"method":"POST","url":%q,"body":%s}}]}]}`, r.URL, body)
	}
	c.Do(http.MethodPost, "/flows/definitions", flow(`"{{ input.n }}"`), host...).Want(http.StatusCreated).Into(&made)
	definition := made.ID
	h, hooked := newHook(t, c)
	c.Do(http.MethodPost, "/flows/schedules", fmt.Sprintf(`{"definition_id":%q,"description":"each minute","cron_expression":"* * * * *"}`, hooked), host...).Want(http.StatusCreated)

	records := make([]map[string]any, moveRecords)
	for i := range records {
		records[i] = map[string]any{"n": i, "after": moveTakes.Seconds() * float64(i) / moveRecords}
	}
	text, err := json.Marshal(records)
	require.NoError(t, err)
	var set struct{ ID string }
	c.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":1500}`, host...).Want(http.StatusCreated).Into(&set)
	c.Do(http.MethodPost, "/data/record-sets/"+set.ID+"/records", fmt.Sprintf(`{"chunk_index":0,"records":%s}`, text), host...)
	c.Do(http.MethodPost, "/data/record-sets/"+set.ID+"/seal", fmt.Sprintf(`{"expected_count":%d}`, moveRecords), host...).
		Want(http.StatusOK)
	var started struct {
		BatchID string `json:"batch_id"`
	}
	said := c.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", fmt.Sprintf(`{"record_set_id":%q}`, set.ID), host...)
	said.Into(&started)
	require.NotEmpty(t, started.BatchID, string(said.Body))

	stop, acked := sends(t, p, h)
	until(t, "the batch is under way", func() bool { return r.count() > moveRecords/20 })
	move := []string{"org", "move", o.id, "--to-database-url", now.dsn, "--to", "https://cell0." + commonHost}
	for _, step := range []string{"check", "pause", "drain", "refuse", "close", "copy", "switch", "open", "delete"} {
		old.dies(step, move...)
		live := old.number("SELECT count(*) FROM flow.organization WHERE status = 'active'") +
			now.number("SELECT count(*) FROM flow.organization WHERE status = 'active'")
		assert.LessOrEqual(t, live, 1, "killed before %s: both cells have it", step)
	}
	old.run(nil, move...)
	before := r.count()
	t.Logf("%d of %d records were sent when it had moved", before, moveRecords)

	var me map[string]any
	c.Do(http.MethodGet, "/account/me", nil, host...).Want(http.StatusOK).Into(&me)
	until(t, "the batch is over", func() bool {
		return c.Do(http.MethodGet, "/flows/batches/"+started.BatchID, nil, host...).Want(http.StatusOK).JSON()["status"] == "completed"
	})
	assert.Equal(t, 1, now.number("SELECT count(*) FROM flow.due WHERE kind = 'schedule'"), "the schedule goes on")
	close(stop)
	messages := <-acked
	until(t, "each message has its batch", func() bool {
		return now.number("SELECT count(*) FROM flow.batch WHERE trigger_type = 'webhook'") >= len(messages)
	})
	assert.Equal(t, len(messages), now.number("SELECT count(*) FROM flow.webhook_delivery"))
	assert.Equal(t, len(messages), now.number("SELECT count(*) FROM flow.batch WHERE trigger_type = 'webhook'"))
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Len(t, r.seen, moveRecords)
	for body, n := range r.seen {
		if n != 1 {
			t.Errorf("record %s was sent %d times", body, n)
		}
	}
	assert.Less(t, before, moveRecords, "the batch was over before the organization moved")
}

// sends posts messages until it is told to stop, each until it is acknowledged.
func sends(t *testing.T, p *proxy, h hook) (stop chan struct{}, acked chan []string) {
	t.Helper()
	stop, acked = make(chan struct{}), make(chan []string, 1)
	c := &apitest.Client{URL: p.url, HTTP: &http.Client{}}
	c = c.In(t)
	go func() {
		var done []string
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			message := fmt.Sprintf("msg_%d", n)
			for h.post(t, c, commonHost, message).Status != http.StatusAccepted {
				<-tick.C
			}
			done = append(done, message)
			select {
			case <-stop:
				acked <- done
				return
			case <-tick.C:
			}
		}
	}()
	return stop, acked
}

// dies runs a command until it says what it does next, and kills it there.
func (c *cell) dies(step string, args ...string) {
	c.t.Helper()
	cmd := c.command(args...)
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), step+":") {
		c.t.Log(lines.Text())
	}
	_ = cmd.Process.Kill()
	if cmd.Wait() == nil {
		c.t.Errorf("the move ended before it came to %s", step)
	}
}

func (c *cell) number(sql string) (n int) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), sql).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}
