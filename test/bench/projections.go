package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// projectionRecords wait in each shape of a queue.
const projectionRecords = 1_000_000

// queueShape is how the records that wait for an account are spread.
type queueShape struct {
	name    string
	batches int
	// most is what a projection may take at most, 99 times in 100, in milliseconds.
	most float64
	// starts is how many batches are started in the time of one raw sum of it at least; 0 where that is no measure.
	starts float64
}

var queueShapes = []queueShape{
	{"one batch", 1, 20, 0},
	{"20,000 batches", 20_000, 40, 2},
	{"200,000 batches", 200_000, 400, 2},
}

// projections measures what asks for the state of an account's budgets while very many records wait for them. Each
// shape has an organization and an account of its own; nobody works.
func projections(ctx context.Context, e *env) ([]row, error) {
	own, err := e.apart(ctx)
	if err != nil {
		return nil, err
	}
	defer own.close()
	s, err := own.stack(ctx)
	if err != nil {
		return nil, err
	}
	records := projectionRecords
	if e.records > 0 {
		records = e.records
	}
	var queues []*projected
	for i, shape := range queueShapes {
		shape.batches = max(shape.batches*records/projectionRecords, 1)
		q := &projected{queueShape: shape, service: *s, records: records}
		if err := q.prepare(ctx, own, fmt.Sprintf("projected%d", i)); err != nil {
			return nil, fmt.Errorf("%s: %w", shape.name, err)
		}
		queues = append(queues, q)
	}
	own.profile = e.profile
	if err := s.serve(ctx, own, idleVariable+"=yes"); err != nil {
		return nil, err
	}
	for _, q := range queues {
		q.url = s.url
		if err := q.fill(ctx, own); err != nil {
			return nil, fmt.Errorf("%s: %w", q.name, err)
		}
	}
	own.settle(ctx)
	var out []row
	for _, q := range queues {
		rows, err := readAll(ctx, own, &q.service, q.reads(), q.most)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
		started, err := q.starts(ctx, own)
		if err != nil {
			return nil, err
		}
		out = append(out, started)
	}
	return out, nil
}

const (
	// clientsStarting start so many batches of one record behind what is queued.
	clientsStarting, startedBehind = 32, 640
)

// starts measures how many batches are started, each with its estimate, in the time of one raw sum of what waits.
func (q *projected) starts(ctx context.Context, e *env) (row, error) {
	var raw []time.Duration
	for range e.repeats {
		d, err := rawQueue(ctx, e.pool, &q.service, nil)
		if err != nil {
			return row{}, err
		}
		raw = append(raw, d)
	}
	path := "/flows/definitions/" + q.definitions[0].String() + "/trigger"
	took, err := timed(func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(clientsStarting)
		for i := range startedBehind {
			group.Go(func() error {
				return q.call(ctx, http.MethodPost, path, fmt.Appendf(nil, `{"input_data":{"id":"%d","balance":1}}`, i), nil)
			})
		}
		return group.Wait() //nolint:wrapcheck // says everything
	})
	if err != nil {
		return row{}, err
	}
	return row{what: "starts, " + q.name + " queued", ours: perSecond(startedBehind, took, "starts"),
		raw:   "sum " + short(median(raw)),
		ratio: median(raw).Seconds() * startedBehind / took.Seconds(), target: q.queueShape.starts}, nil
}

// projected is an account for which records wait, and its organization.
type projected struct {
	queueShape
	service
	records     int
	definitions []uuid.UUID
	source      uuid.UUID
	// deep is a cursor far from the beginning of the usage history.
	deep string
}

// prepare runs the batch that the others are copies of.
func (q *projected) prepare(ctx context.Context, e *env, account string) error {
	if err := q.admit(ctx, e, account); err != nil {
		return err
	}
	for i := range 20 {
		text, err := q.defineFlow(ctx, fmt.Sprintf(
			`{"name":"flow %d","status":"active","steps":[{"id":"s","tasks":[%s]}]}`, i, modifyTask))
		if err != nil {
			return err
		}
		q.definitions = append(q.definitions, uuid.MustParse(text))
	}
	if q.batches == 1 {
		return nil
	}
	var err error
	q.source, err = q.start(ctx, e, q.definitions[0].String(), sampleRows(q.records/q.batches))
	return err
}

// fill queues the records, and writes a month of windows.
func (q *projected) fill(ctx context.Context, e *env) error {
	_, err := e.pool.Exec(ctx, `INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, own, cap)
		SELECT $1, 'modify', w, date_bin(make_interval(secs => w), flow.clock(), 'epoch') - make_interval(secs => w) * i,
			date_bin(make_interval(secs => w), flow.clock(), 'epoch') - make_interval(secs => w) * (i - 1), 1 + i % 100, 140
		FROM unnest(ARRAY[60, 3600, 86400]) w CROSS JOIN LATERAL generate_series(1, 30 * 86400 / w) i ON CONFLICT DO NOTHING`, q.domain)
	if err != nil {
		return fmt.Errorf("fill the ledger: %w", err)
	}
	history := "/platforms/dialer/domains/" + q.domain + "/usage-history?limit=500"
	for i, next := 0, ""; i < 20_000/500; i++ {
		var page struct {
			Next string `json:"next_cursor"`
		}
		if err := q.call(ctx, http.MethodGet, history+next, nil, &page); err != nil {
			return err
		}
		q.deep, next = page.Next, "&cursor="+url.QueryEscape(page.Next)
	}
	if q.batches == 1 {
		return q.queue(ctx, e)
	}
	return copySmall(ctx, e.pool, q.source, q.definitions, q.batches, q.batches)
}

// queue starts one batch of all records.
func (q *projected) queue(ctx context.Context, e *env) error {
	var set struct{ ID string }
	if err := q.call(ctx, http.MethodPost, "/data/record-sets", nil, &set); err != nil {
		return err
	}
	path := "/data/record-sets/" + set.ID
	u := uploader{e, &q.service, chunkBodies(sampleRows(q.records))}
	if err := u.send(ctx, path, 2); err != nil {
		return err
	}
	if err := q.call(ctx, http.MethodPost, path+"/seal", fmt.Appendf(nil, `{"expected_count":%d}`, q.records),
		nil); err != nil {
		return err
	}
	return q.call(ctx, http.MethodPost, "/flows/definitions/"+q.definitions[0].String()+"/trigger",
		fmt.Appendf(nil, `{"record_set_id":%q}`, set.ID), nil)
}

func (q *projected) reads() (out []read) {
	account := "/platforms/dialer/domains/" + q.domain
	for _, r := range []read{
		{name: "queue", paths: []string{account + "/queue"}, raw: rawQueue},
		{name: "estimate", paths: []string{account + "/estimate"},
			body: `{"action_id":"dialer__api__modify","record_count":10000}`, raw: rawQueue},
		{name: "headroom", paths: []string{account + "/headroom"}, raw: rawLedger},
		{name: "attribution", paths: []string{account + "/attribution"}, raw: rawLedger},
		{name: "usage history", paths: []string{account + "/usage-history?limit=100"}, raw: rawHistory},
		{name: "usage history, deep", paths: []string{account + "/usage-history?limit=100&cursor=" +
			url.QueryEscape(q.deep)}, raw: rawHistory},
		{name: "domains", paths: []string{"/platforms/dialer/domains", account}, raw: rawDomain},
		{name: "margins and lanes", paths: []string{account + "/margins", account + "/lanes"}, raw: rawDomain},
		{name: "pauses", paths: []string{account + "/pauses", "/admin/dispatch/pauses?include_released=true"},
			raw: rawPauses},
	} {
		r.group = "projections, " + q.name + " queued"
		out = append(out, r)
	}
	return out
}

// rawQueue sums up what waits in the queues of an account, no plan, hold or window looked at.
func rawQueue(ctx context.Context, pool *pgxpool.Pool, s *service, _ []byte) (time.Duration, error) {
	return drain(ctx, pool, `SELECT org_id, bucket, lane, step_no, task_no, count(*), sum(ready_parts), sum(ready_records) FROM flow.lane_batch
		WHERE domain = $1 AND open AND ready_parts > 0 GROUP BY 1, 2, 3, 4, 5`, s.domain)
}

func rawHistory(ctx context.Context, pool *pgxpool.Pool, s *service, _ []byte) (time.Duration, error) {
	return drain(ctx, pool, "SELECT * FROM flow.ledger WHERE domain = $1 ORDER BY starts_at DESC LIMIT 100", s.domain)
}

func rawDomain(ctx context.Context, pool *pgxpool.Pool, s *service, _ []byte) (time.Duration, error) {
	return drain(ctx, pool, "SELECT d.*, t.* FROM flow.domain d JOIN flow.tenant t USING "+
		"(tenancy_id) WHERE d.tenancy_id = $1", s.domain)
}

func rawPauses(ctx context.Context, pool *pgxpool.Pool, s *service, _ []byte) (time.Duration, error) {
	return drain(ctx, pool, "SELECT * FROM flow.pause WHERE org_id = $1 ORDER BY created_at LIMIT 100", s.org)
}
