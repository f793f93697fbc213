package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/usage"
)

// A large batch is made of blocks: each is a copy of all rows that one real batch of blockRecords left, under other
// numbers. So millions of records are there within a minute, and look as the service leaves them.

// blockState is how far the records of a block have come.
type blockState string

// A block is as its source was left, or put back: all its records wait, or are in a call under way. The latter two are
// for flows of one task that makes calls.
const (
	blockDone    blockState = "done"
	blockWaiting blockState = "waiting"
	blockCalled  blockState = "called"
)

type block struct {
	source uuid.UUID
	state  blockState
}

// grown is a batch made of blocks.
type grown struct {
	id, pageSet uuid.UUID
	blocks      []block
	status      string
	created     time.Time
	// retryOf is the batch that this one retries; nil for others. Its blocks are of retries of that one's blocks.
	retryOf *grown
	// records is how many each block has (of positions, where the batch is a retry).
	records int
}

// grow writes the rows of a batch.
func (g *grown) grow(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { //nolint:wrapcheck // says enough
		if err := g.layOut(ctx, tx); err != nil {
			return err
		}
		for _, copied := range g.copies() {
			if err := copyRows(ctx, tx, copied); err != nil {
				return err
			}
		}
		if err := g.count(ctx, tx); err != nil {
			return err
		}
		return g.queue(ctx, tx)
	})
}

// layOut makes a table of where each block begins.
func (g *grown) layOut(ctx context.Context, tx pgx.Tx) error {
	sources, states := make([]uuid.UUID, len(g.blocks)), make([]string, len(g.blocks))
	for i, b := range g.blocks {
		sources[i], states[i] = b.source, string(b.state)
	}
	_, err := tx.Exec(ctx, `CREATE TEMP TABLE block ON COMMIT DROP AS
		SELECT i, u.source, u.state, (i - 1) * $3::bigint AS position, (sum(n.slices) OVER (ORDER BY i) - n.slices)::int AS no
		FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS u(source, state, i)
		JOIN LATERAL (SELECT max(no) + 1 AS slices FROM flow.slice WHERE batch_id = u.source) n ON true`, sources,
		states, g.records)
	if err != nil {
		return fmt.Errorf("lay out blocks: %w", err)
	}
	if g.retryOf == nil {
		return nil
	}
	// What a retry inherits lies in slices of the batch that it retries: they are where that one's blocks put them.
	_, err = tx.Exec(ctx, `ALTER TABLE block ADD retried_no int`)
	if err != nil {
		return fmt.Errorf("lay out blocks: %w", err)
	}
	_, err = tx.Exec(ctx, `UPDATE block b SET retried_no = (i - 1) * (SELECT max(s.no) + 1 FROM flow.slice s, flow.batch r WHERE r.id = b.source AND s.batch_id = r.retry_of)`)
	if err != nil {
		return fmt.Errorf("lay out blocks: %w", err)
	}
	return nil
}

// rowCopy copies rows of a table that belong to the sources of blocks.
type rowCopy struct {
	table string
	// join selects the rows t of each block b.
	join string
	// order is how they are written.
	order string
	// columns are values in place of the source's.
	columns map[string]string
}

// copies are the tables that a batch fills, but for its queue.
func (g *grown) copies() []rowCopy {
	id := quoteID(g.id)
	ofBlock, done := "t.batch_id = b.source", "t.batch_id = b.source AND b.state = 'done'"
	out := []rowCopy{
		{"flow.batch", "t.id = b.source AND b.i = 1", "t.id", g.batchColumns()},
		{"flow.slice", ofBlock, "b.i, t.no", sliceColumns(id)},
		{"flow.job", done, "b.i, t.position", map[string]string{"batch_id": id, "position": "t.position + b.position",
			"slice_no": "t.slice_no + b.no"}},
		{"flow.fragment", done, "b.i, t.slice_no, t.seq", map[string]string{"batch_id": id,
			"slice_no": "t.slice_no + b.no"}},
	}
	if g.retryOf != nil {
		return append(out, rowCopy{"flow.inherited", ofBlock, "b.i, t.slice_no", map[string]string{
			"batch_id": id, "slice_no": "t.slice_no + b.no", "from_batch": quoteID(g.retryOf.id),
			"from_slice": "t.from_slice + b.retried_no",
		}})
	}
	return append(out, rowCopy{"flow.page", "t.set_id = (SELECT page_set FROM flow.batch WHERE id = b.source)",
		"b.i, t.first",
		map[string]string{"set_id": quoteID(g.pageSet), "first": "t.first + b.position"}})
}

func (g *grown) batchColumns() map[string]string {
	at := "timestamptz " + quoteText(g.created.UTC().Format(time.RFC3339Nano))
	columns := map[string]string{
		"id": quoteID(g.id), "page_set": quoteID(g.pageSet), "created_at": at, "record_count": "0",
	}
	if g.retryOf != nil {
		columns["retry_of"], columns["retry_root"] = quoteID(g.retryOf.id), quoteID(g.retryOf.id)
	}
	return columns
}

// jobStatuses are the counters of slices and batches.
var jobStatuses = []string{"staged", "queued", "pending", "started", "needs_reconcile", "completed", "failed",
	"cancelled", "accepted", "rejected", "unprocessed",
	"unresolved"}

func sliceColumns(id string) map[string]string {
	columns := map[string]string{
		"batch_id": id, "no": "t.no + b.no", "first": "t.first + b.position",
		"state":     "CASE b.state WHEN 'done' THEN t.state ELSE 'calling' END",
		"remaining": "CASE b.state WHEN 'done' THEN t.remaining ELSE t.records END",
		"detached":  "CASE b.state WHEN 'done' THEN t.detached ELSE 0 END",
	}
	for _, s := range jobStatuses {
		columns[s] = "CASE b.state WHEN 'done' THEN t." + s + " ELSE 0 END"
	}
	columns["queued"] = "CASE b.state WHEN 'done' THEN t.queued WHEN 'waiting' THEN t.records ELSE 0 END"
	columns["started"] = "CASE b.state WHEN 'done' THEN t.started WHEN 'called' THEN t.records ELSE 0 END"
	return columns
}

// copyRows copies what the database neither numbers nor computes itself.
func copyRows(ctx context.Context, tx pgx.Tx, c rowCopy) error {
	rows, err := tx.Query(ctx, `SELECT attname::text FROM pg_attribute
		WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' AND attgenerated = '' ORDER BY attnum`, c.table)
	if err != nil {
		return fmt.Errorf("columns of %s: %w", c.table, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("columns of %s: %w", c.table, err)
	}
	values := make([]string, len(names))
	for i, name := range names {
		if values[i] = c.columns[name]; values[i] == "" {
			values[i] = "t." + name
		}
	}
	sql := fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM block b JOIN %s t ON %s ORDER BY %s", c.table,
		strings.Join(names, ", "), strings.Join(values, ", "), c.table, c.join, c.order)
	if _, err := tx.Exec(ctx, sql); err != nil {
		return fmt.Errorf("copy rows of %s: %w", c.table, err)
	}
	return nil
}

// count sets the batch's counters to what its slices say, and makes the record set of its pages.
func (g *grown) count(ctx context.Context, tx pgx.Tx) error {
	sums := make([]string, len(jobStatuses))
	for i, s := range jobStatuses {
		sums[i] = "sum(s." + s + ")"
	}
	started, completed, updated := "b.created_at + interval '10 ms'", "b.created_at + interval '4 s'",
		"b.created_at + interval '4 s'"
	switch g.status {
	case "queued":
		started, completed, updated = "NULL", "NULL", "b.created_at"
	case "running":
		completed = "NULL"
	}
	statements := []string{
		"INSERT INTO flow.batch_count (batch_id, org_id, status, started_at, completed_at, updated_at, record_count, " +
			strings.Join(jobStatuses, ", ") +
			") SELECT b.id, b.org_id, " + quoteText(g.status) + ", " + started + ", " + completed + ", " + updated +
			", sum(s.records), " + strings.Join(sums, ", ") +
			" FROM flow.batch b JOIN flow.slice s ON s.batch_id = b.id WHERE b.id = $1 GROUP BY b.id",
		"UPDATE flow.batch b SET record_count = c.record_count FROM flow.batch_count c " +
			"WHERE c.batch_id = b.id AND b.id = $1",
	}
	if g.status == "cancelled" {
		statements = append(statements,
			"UPDATE flow.batch_count SET unprocessed = unprocessed + queued, queued = 0 WHERE batch_id = $1")
	}
	if g.retryOf == nil {
		statements = append(statements,
			`INSERT INTO flow.record_set (id, org_id, chunk_size, chunk_count, received_count, staging_expires_at)
				SELECT page_set, org_id, 50000, 1 + record_count / 50000, record_count, flow.clock() + interval '3 days' FROM flow.batch WHERE id = $1`,
			`UPDATE flow.record_set r SET status = 'sealed', sealed_at = b.created_at, expected_count = received_count, content_hash = repeat('0', 64)
				FROM flow.batch b WHERE b.id = $1 AND r.id = b.page_set`,
			`UPDATE flow.record_set r SET status = 'consumed', batch_id = b.id, staging_expires_at = NULL FROM flow.batch b WHERE b.id = $1 AND r.id = b.page_set`)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql, g.id); err != nil {
			return fmt.Errorf("count what a batch has: %w", err)
		}
	}
	return nil
}

// queue writes the batch's queue, and what is in it or in a call under way; nothing for one that is done.
func (g *grown) queue(ctx context.Context, tx pgx.Tx) error {
	queued, err := tx.Exec(ctx,
		`INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, definition_id, version, domain, bucket, lane, open, ready_parts,
			ready_records)
		SELECT b.id, 0, 0, b.org_id, b.definition_id, b.version, k.domain, k.bucket, k.lane, $2,
			(SELECT least(count(*), 1) FROM block WHERE state = 'waiting'),
			(SELECT coalesce(sum(s.records), 0) FROM block w JOIN flow.slice s ON s.batch_id = w.source WHERE w.state = 'waiting')
		FROM flow.batch b CROSS JOIN (SELECT * FROM flow.call WHERE action_id = 'dialer__api__upload' LIMIT 1) k
		WHERE b.id = $1 AND EXISTS (SELECT FROM block WHERE state <> 'done')`, g.id, g.status != "cancelled")
	if err != nil {
		return fmt.Errorf("make a batch's queue: %w", err)
	}
	if queued.RowsAffected() == 0 {
		return nil
	}
	call := uuid.New()
	part := `INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off, call_id, call_seq)
		SELECT s.batch_id, 0, 0, min(s.no), max(s.no), 0, (array_agg(s.records ORDER BY s.no DESC))[1], $2::uuid, CASE WHEN $2::uuid IS NULL THEN NULL ELSE 0 END
		FROM flow.slice s WHERE s.batch_id = $1 AND `
	if _, err := tx.Exec(ctx, part+"s.queued > 0 GROUP BY s.batch_id", g.id, nil); err != nil {
		return fmt.Errorf("queue a batch: %w", err)
	}
	made, err := tx.Exec(ctx, part+"s.started > 0 GROUP BY s.batch_id", g.id, call)
	if err != nil {
		return fmt.Errorf("put a batch into a call: %w", err)
	}
	if made.RowsAffected() == 0 {
		return nil
	}
	made, err = tx.Exec(ctx, `INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check, claimed_at, send_before, counts_in)
		SELECT $2, q.org_id, q.domain, q.bucket, q.lane, 'dialer__api__upload', 'intent', 'bench', c.started, '', '{}', 'lookup', flow.clock(), flow.clock() + interval '1 day', '{}'
		FROM flow.lane_batch q JOIN flow.batch_count c USING (batch_id) WHERE q.batch_id = $1`, g.id, call)
	if err == nil && made.RowsAffected() != 1 {
		err = errors.New("there is no row of it")
	}
	if err != nil {
		return fmt.Errorf("put a batch into a call: %w", err)
	}
	return nil
}

func quoteID(id uuid.UUID) string { return quoteText(id.String()) + "::uuid" }

func quoteText(s string) string { return "'" + s + "'" }

// queueSmall queues the records of so many batches of a block, where those of its source were: a batch that is over has
// no queue that could be copied.
func queueSmall(ctx context.Context, tx pgx.Tx, waits string, waiting int) error {
	made, err := tx.Exec(ctx,
		`INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, definition_id, version, domain, bucket, lane,
			ready_parts, ready_records)
		SELECT b.id, 0, 0, k.org_id, b.definition_id, 1, k.domain, k.bucket, k.lane, 1, b.size
		FROM block b CROSS JOIN (SELECT c.* FROM flow.call c JOIN flow.batch t ON t.org_id = c.org_id
			WHERE t.id = (SELECT source FROM block LIMIT 1) AND c.action_id = 'dialer__api__modify' LIMIT 1) k
		WHERE `+waits)
	if err == nil && made.RowsAffected() != int64(waiting) {
		err = fmt.Errorf("%d instead of %d", made.RowsAffected(), waiting)
	}
	if err != nil {
		return fmt.Errorf("make the queues of batches: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off)
		SELECT b.id, 0, 0, 0, 0, 0, b.size FROM block b WHERE `+waits)
	if err != nil {
		return fmt.Errorf("queue batches: %w", err)
	}
	return nil
}

// copySmall copies a batch of one slice many times, by turns to the definitions, evenly over the last 30 days. The
// records of the last so many wait.
func copySmall(ctx context.Context, pool *pgxpool.Pool, source uuid.UUID, definitions []uuid.UUID,
	batches, waiting int) error {
	waits := fmt.Sprintf("(b.i > b.n - %d)", waiting)
	const at, size = "b.at", "b.size"
	ofBlock := "t.batch_id = b.source"
	counters := func(id string) map[string]string {
		columns := map[string]string{"batch_id": id}
		for _, s := range jobStatuses {
			columns[s] = "CASE WHEN " + waits + " THEN 0 ELSE t." + s + " END"
		}
		columns["queued"] = waits + "::int * " + size
		return columns
	}
	state := counters("b.id")
	state["status"] = "CASE WHEN " + waits + " THEN 'running' ELSE t.status END"
	state["started_at"], state["updated_at"] = at+" + interval '5 ms'", at+" + interval '50 ms'"
	state["completed_at"] = "CASE WHEN NOT " + waits + " THEN " + at + " + interval '50 ms' END"
	slice := counters("b.id")
	slice["state"] = "CASE WHEN " + waits + " THEN 'calling' ELSE t.state END"
	slice["remaining"] = waits + "::int * " + size
	copies := []rowCopy{
		{"flow.batch", "t.id = b.source", "b.i", map[string]string{
			"id": "b.id", "page_set": "CASE WHEN t.page IS NULL THEN b.page_set END", "created_at": at,
			"definition_id": "b.definition_id",
		}},
		{"flow.batch_count", ofBlock, "b.i", state},
		{"flow.slice", ofBlock, "b.i", slice},
		{"flow.fragment", ofBlock + " AND NOT " + waits, "b.i", map[string]string{"batch_id": "b.id"}},
		{"flow.page", "t.set_id = (SELECT page_set FROM flow.batch WHERE id = b.source)", "b.i",
			map[string]string{"set_id": "b.page_set"}},
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Ids in the order of time: its milliseconds come first in them.
		_, err := tx.Exec(ctx, `CREATE TEMP TABLE block ON COMMIT DROP AS
			SELECT i, $3::int AS n, (SELECT record_count FROM flow.batch WHERE id = $1::uuid) AS size, $1::uuid AS source, ($2::uuid[])[1 + i % cardinality($2::uuid[])] AS definition_id, gen_random_uuid() AS page_set, at,
				(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid AS id
			FROM (SELECT i, flow.clock() - interval '30 days' * (1 - i / $3::float8) AS at FROM generate_series(1, $3::int) i) d`, source, definitions, batches)
		if err != nil {
			return fmt.Errorf("lay out batches: %w", err)
		}
		for _, c := range copies {
			if err := copyRows(ctx, tx, c); err != nil {
				return err
			}
		}
		if err := queueSmall(ctx, tx, waits, waiting); err != nil {
			return err
		}
		// MATERIALIZED because the planner takes flow.batch for as small as it was, and would scan it for each row.
		_, err = tx.Exec(ctx, `WITH used AS MATERIALIZED (SELECT u.* FROM flow.batch t JOIN flow.usage u USING (org_id, definition_id) WHERE t.id = $1)
			INSERT INTO flow.usage (org_id, day, definition_id, credential_id, action_id, calls, records)
			SELECT u.org_id, (b.at AT TIME ZONE 'UTC')::date, b.definition_id, u.credential_id, u.action_id, sum(b.size), sum(b.size)
			FROM block b CROSS JOIN used u GROUP BY 1, 2, 3, 4, 5 ON CONFLICT DO NOTHING`, source)
		return err //nolint:wrapcheck // says enough
	})
	if err != nil {
		return err //nolint:wrapcheck // says enough
	}
	if _, err := usage.RollUp(ctx, pool, time.Minute); err != nil {
		return err //nolint:wrapcheck // says enough
	}
	_, err = pool.Exec(ctx, "VACUUM ANALYZE")
	return err //nolint:wrapcheck // says enough
}
