package dispatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/run"
	"flowlane/test/pgtest"
)

// decoded is an upload whose rows have keys that the flow decodes.
const decoded = `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo",
	"row":{"id":"{{ fromBase64(input.id) }}","n":"{{ input.n }}"}}}]}]`

// A record whose key cannot be stored fails, wherever it stands in its call, and says what to do; its neighbours, and
// another organization's records on the same account, go out.
func TestKeyWithNUL(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	first := b.org
	id := b.start(b.define(decoded), 11, func(i int) string {
		key := fmt.Sprintf("k%d", i)
		if i == 0 || i == 5 || i == 10 {
			key = fmt.Sprintf("a\x00%d", i)
		}
		return fmt.Sprintf(`{"id":%q,"n":%d}`, base64.StdEncoding.EncodeToString([]byte(key)), i)
	})
	b.join("Beta")
	other := b.start(b.define(strings.ReplaceAll(uploadFlow, "demo", "beta")), 10, plainRow)
	if status, counts := b.await(other); status != batch.BatchCompleted {
		t.Errorf("the other organization's batch ended %s with %+v", status, counts)
	}
	b.org = first
	if status, counts := b.await(id); status != batch.BatchPartiallyFailed || counts.Accepted != 8 || counts.Failed != 3 {
		t.Errorf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 8)
	b.once("beta", dialersim.KindUpload, 10)
	for _, e := range b.errors(id) {
		if e.Code != "invalid_parameters" || !strings.Contains(e.Message, "NUL") || e.StepID != "send" ||
			e.TaskID != "up" {
			t.Errorf("a record failed of %+v", e)
		}
	}
}

// errors are those of the records of a batch that failed, by position.
func (b *bundle) errors(id uuid.UUID) (out []batch.JobError) {
	b.t.Helper()
	rows := must(b.pool.Query(b.t.Context(),
		"SELECT error FROM flow.job WHERE batch_id = $1 AND status = 'failed' ORDER BY position", id))
	for _, raw := range must(pgx.CollectRows(rows, pgx.RowTo[[]byte])) {
		var e batch.JobError
		if err := json.Unmarshal(raw, &e); err != nil {
			b.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// What a call must have for itself may be longer than a key of an index, and have any character: the call goes out,
// alone, and the provider says what it thinks of it.
func TestUnusualExclusiveKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		list   string
		status batch.BatchStatus
		reason string
	}{
		"Long": {strings.Repeat("l", 9000), batch.BatchFailed, "longer than 200 bytes"},
		"NUL":  {"l\x00", batch.BatchCompleted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, dispatch.Options{})
			var alone atomic.Int64
			watch := func(request []byte) func() {
				if strings.Contains(string(request), "/lists/"+url.PathEscape(tt.list)+"/upload") {
					alone.Add(int64(b.count("SELECT count(*) FROM flow.call WHERE exclusive_key LIKE 'sha256:%'")))
				}
				return func() {}
			}
			b.watch.Store(&watch)
			flow := b.define(`[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
				"params":{"list":"{{ fromBase64(input.list) }}","row":{"id":"{{ input.id }}"}}}]}]`)
			list := base64.StdEncoding.EncodeToString([]byte(tt.list))
			id := b.start(flow, 5, func(i int) string { return fmt.Sprintf(`{"id":"k%d","list":%q}`, i, list) })
			org := b.org
			b.join("Beta")
			if status, counts := b.await(b.start(b.define(uploadFlow), 10, plainRow)); status != batch.BatchCompleted {
				t.Errorf("the other organization's batch ended %s with %+v", status, counts)
			}
			b.org = org
			if status, counts := b.await(id); status != tt.status {
				t.Errorf("batch ended %s with %+v", status, counts)
			}
			for _, e := range b.errors(id) {
				if e.Code != "provider_refused" || !strings.Contains(e.ProviderMessage, tt.reason) {
					t.Errorf("a record failed of %+v", e)
				}
			}
			if n := alone.Load(); n != 1 {
				t.Errorf("%d calls had the list for themselves when they arrived, want the one", n)
			}
		})
	}
}

// A queue whose calls cannot be made for a reason that nobody thought of waits, and everybody else's go out.
func TestBrokenQueue(t *testing.T) {
	t.Parallel()
	flows := map[string]string{"Bulk": uploadFlow, "Small": flowOf(modify("m", "demo", `{"n":1}`))}
	for name, sql := range map[string]string{
		"NoSuchTask": "WITH q AS (UPDATE flow.lane_batch SET task_no = 9 WHERE batch_id = $1) UPDATE flow.part SET task_no = 9 WHERE batch_id = $1",
		"NoSuchStep": "WITH q AS (UPDATE flow.lane_batch SET step_no = 9 WHERE batch_id = $1) UPDATE flow.part SET step_no = 9 WHERE batch_id = $1",
	} {
		for kind, flow := range flows {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				b := setup(t, dispatch.Options{})
				def := b.define(flow)
				broken := b.startBroken(def, sql)
				ids := map[uuid.UUID]uuid.UUID{b.start(def, 10, plainRow): b.org}
				b.join("Beta")
				ids[b.start(b.define(flow), 10, plainRow)] = b.org
				for id, org := range ids {
					b.org = org
					if status, counts := b.await(id); status != batch.BatchCompleted {
						t.Errorf("batch ended %s with %+v", status, counts)
					}
				}
				if n := b.count("SELECT queued FROM flow.batch_count WHERE batch_id = $1", broken); n != 10 {
					t.Errorf("%d records of the broken queue wait, want all: the test shows nothing", n)
				}
			})
		}
	}
}

// startBroken starts a batch of ten records, of which a statement breaks something before anybody sees it.
func (b *bundle) startBroken(def uuid.UUID, sql string) (id uuid.UUID) {
	b.t.Helper()
	in := run.StartInput{OrgID: b.org, DefinitionID: def, Version: 1, TriggerType: run.TriggerAPICall}
	for i := range 10 {
		in.Source.Records = append(in.Source.Records, []byte(plainRow(i)))
	}
	err := pg.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		s, err := b.runs.Start(ctx, tx, in)
		if err == nil {
			id = s.BatchID
			pgtest.WriteOutParts(b.t, tx)
			_, err = tx.Exec(ctx, sql, id)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}
