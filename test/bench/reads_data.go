package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
)

const (
	readRecords = 10_000_000
	readBatches = 20
	// blockMost is how many records a block has at most.
	blockMost = 10_000
	stepsFlow = `{"name":"steps","status":"active","input_schema":{"type":"object","properties":{"note":{"type":"string","minLength":3}}},"steps":[
		{"id":"shape","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":{"id":"{{ input.id }}","phone":"{{ input.phone }}","name":"{{ input.first_name }}"}}}]},
		{"id":"send","tasks":[{"id":"u","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"steps","row":"{{ steps.shape.t.output }}"}}]}]}`
)

// readData is a database of large batches, in the order of their creation.
type readData struct {
	service *service
	batches []*grown
	// by name, those that are unlike the others.
	named map[string]*grown
	// flows are definitions by name, from the batches that the others are copies of.
	flows map[string]string
	from  sources
}

// sources are real batches of one block each, by name.
type sources map[string]uuid.UUID

// newReadData plans so many records in readBatches batches, and two that retry some of them. It runs what they are
// copies of.
func newReadData(ctx context.Context, e *env, s *service, records int) (*readData, error) {
	perBatch := max(records/readBatches, 100)
	size := min(perBatch, blockMost)
	d := &readData{service: s, named: map[string]*grown{}, flows: map[string]string{}}
	var err error
	if d.from, err = d.sources(ctx, e, size); err != nil {
		return nil, err
	}
	d.plan(d.from, size, perBatch/size)
	return d, nil
}

// grow makes the batches.
func (d *readData) grow(ctx context.Context, e *env) error {
	began := time.Now()
	for _, g := range d.batches {
		if err := g.grow(ctx, e.pool); err != nil {
			return err
		}
	}
	for _, id := range d.from {
		// The sources stay, small batches beside the large ones, from before everything that is summed up.
		if _, err := e.pool.Exec(ctx,
			"UPDATE flow.batch SET created_at = created_at - interval '40 days' WHERE id = $1", id); err != nil {
			return err
		}
	}
	if err := fillUsage(ctx, e); err != nil {
		return err
	}
	if _, err := e.pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return err
	}
	var size, records int64
	err := e.pool.QueryRow(ctx,
		"SELECT pg_database_size(current_database()), (SELECT sum(record_count) FROM flow.batch)").Scan(&size, &records)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "reads: %d records in %d batches, %d MiB, made in %s\n", records, len(d.batches), size>>20,
		time.Since(began).Round(time.Second))
	return nil
}

// oneTask is a flow of one task.
func oneTask(name, task string) string {
	return fmt.Sprintf(`{"name":%q,"status":"active","steps":[{"id":"s","tasks":[%s]}]}`, name, task)
}

// sources runs the batches that blocks are copies of, and retries of two of them.
func (d *readData) sources(ctx context.Context, e *env, size int) (sources, error) {
	s := d.service
	for name, flow := range map[string]string{
		"upload": oneTask("upload", fmt.Sprintf(uploadTask, "reads", `"{{ input }}"`)),
		"modify": oneTask("modify", modifyTask),
		"steps":  stepsFlow,
	} {
		var err error
		if d.flows[name], err = s.defineFlow(ctx, flow); err != nil {
			return nil, err
		}
	}
	rules := func(text string) error {
		return s.control(ctx, http.MethodPut, "/_control/accounts/"+benchAccount, `{"rules":`+text+`}`)
	}
	if err := rules(`[{"kind":"equals","field":"phone","value":"none"}]`); err != nil {
		return nil, err
	}
	rows := sampleRows(size)
	out := sources{}
	for _, source := range []struct {
		name, flow string
		// spoil says which rows go wrong, and how.
		spoil func(i int, row []byte) []byte
	}{
		{"clean", "upload", nil},
		{"fifth", "upload", func(i int, row []byte) []byte { return noPhone(row, i%5 == 0) }},
		{"one", "upload", func(i int, row []byte) []byte { return noPhone(row, i == size/2) }},
		{"calls", "modify", nil},
		{"steps", "steps", nil},
		{"percent", "steps", func(i int, row []byte) []byte { return noPhone(row, i%100 == 99) }},
		{"broken", "steps", func(i int, row []byte) []byte {
			if i != size/3 {
				return row
			}
			return bytes.Replace(row, []byte(`"note":"`), []byte(`"note":"","text":"`), 1)
		}},
	} {
		spoilt := rows
		if source.spoil != nil {
			spoilt = make([][]byte, size)
			for i, row := range rows {
				spoilt[i] = source.spoil(i, row)
			}
		}
		id, err := s.start(ctx, e, d.flows[source.flow], spoilt)
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", source.name, err)
		}
		out[source.name] = id
	}
	if err := rules(`[]`); err != nil {
		return nil, err
	}
	for _, of := range []string{"fifth", "percent"} {
		id, err := s.retry(ctx, e, out[of], "rejected")
		if err != nil {
			return nil, fmt.Errorf("retry of source %s: %w", of, err)
		}
		out["retry "+of] = id
	}
	return out, nil
}

func noPhone(row []byte, yes bool) []byte {
	if !yes {
		return row
	}
	return bytes.Replace(row, []byte(`"phone":"+1`), []byte(`"phone":"none","old":"`), 1)
}

// plan says of which blocks each batch is made.
func (d *readData) plan(from sources, size, blocks int) {
	of := func(name string, n int) []block {
		out := make([]block, n)
		for i := range out {
			out[i] = block{from[name], blockDone}
		}
		return out
	}
	// few puts a rare block in place of some of the others.
	few := func(all []block, rare string) []block {
		for i := range min(7, blocks) {
			all[i*blocks/min(7, blocks)].source = from[rare]
		}
		return all
	}
	ages := time.Duration(readBatches+2) * 28 * time.Hour
	now := time.Now()
	add := func(name, status string, content []block, retryOf *grown) {
		id, pageSet := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
		if retryOf != nil {
			pageSet = retryOf.pageSet
		}
		g := &grown{id: id, pageSet: pageSet, blocks: content, status: status, records: size, retryOf: retryOf,
			created: now.Add(-ages)}
		ages = max(ages-28*time.Hour, 20*time.Minute)
		d.batches = append(d.batches, g)
		if name != "" {
			d.named[name] = g
		}
	}
	for i := range 11 {
		add(map[int]string{0: "first", 5: "middle"}[i], "completed", of("clean", blocks), nil)
	}
	add("percent", "partially_failed", of("percent", blocks), nil)
	add("fifth", "partially_failed", of("fifth", blocks), nil)
	add("rare", "partially_failed", few(of("clean", blocks), "one"), nil)
	add("calls", "completed", of("calls", blocks), nil)
	add("broken", "partially_failed", few(of("steps", blocks), "broken"), nil)
	add("", "partially_failed", few(of("steps", blocks), "broken"), nil)
	add("retry percent", "completed", of("retry percent", blocks), d.named["percent"])
	add("retry fifth", "completed", of("retry fifth", blocks), d.named["fifth"])
	half := of("clean", blocks)
	for i := blocks / 2; i < blocks; i++ {
		half[i].state = blockWaiting
	}
	add("cancelled", "cancelled", half, nil)
	half = append([]block(nil), half...)
	for i := blocks / 2; i < min(blocks/2+5, blocks-1); i++ {
		half[i].state = blockCalled
	}
	add("running", "running", half, nil)
	waiting := of("clean", blocks)
	for i := range waiting {
		waiting[i].state = blockWaiting
	}
	add("queued", "queued", waiting, nil)
}

// fillUsage counts calls for each day and definition, as if the batches had made one for every 50,000 records.
func fillUsage(ctx context.Context, e *env) error {
	_, err := e.pool.Exec(ctx,
		`INSERT INTO flow.usage (org_id, day, definition_id, credential_id, action_id, calls, records)
		SELECT b.org_id, (b.created_at AT TIME ZONE 'UTC')::date, b.definition_id, max(u.credential_id::text)::uuid, max(u.action_id), sum(1 + b.record_count / 50000), sum(b.record_count)
		FROM flow.batch b JOIN (SELECT DISTINCT definition_id, credential_id, action_id FROM flow.usage) u USING (definition_id) GROUP BY 1, 2, 3
		ON CONFLICT DO NOTHING`)
	if err != nil {
		return fmt.Errorf("count usage: %w", err)
	}
	return nil
}

// defineFlow makes a definition; CRED stands for the credential.
func (s *service) defineFlow(ctx context.Context, doc string) (id string, err error) {
	var d struct{ ID string }
	err = s.call(ctx, http.MethodPost, "/flows/definitions", bytes.ReplaceAll([]byte(doc), []byte("CRED"),
		[]byte(s.credential)), &d)
	return d.ID, err
}

// start runs a flow over rows and waits until the batch is over.
func (s *service) start(ctx context.Context, e *env, definition string, rows [][]byte) (uuid.UUID, error) {
	var set, started struct {
		ID      string
		BatchID uuid.UUID `json:"batch_id"`
	}
	if err := s.call(ctx, http.MethodPost, "/data/record-sets", nil, &set); err != nil {
		return uuid.Nil, err
	}
	u := uploader{e, s, chunkBodies(rows)}
	if err := u.send(ctx, "/data/record-sets/"+set.ID, 1); err != nil {
		return uuid.Nil, err
	}
	if err := s.call(ctx, http.MethodPost, "/data/record-sets/"+set.ID+"/seal",
		fmt.Appendf(nil, `{"expected_count":%d}`, len(rows)), nil); err != nil {
		return uuid.Nil, err
	}
	if err := s.call(ctx, http.MethodPost, "/flows/definitions/"+definition+"/trigger",
		fmt.Appendf(nil, `{"record_set_id":%q}`, set.ID), &started); err != nil {
		return uuid.Nil, err
	}
	return started.BatchID, e.over(ctx, started.BatchID)
}

// retry retries jobs of a batch and waits until the retry is over.
func (s *service) retry(ctx context.Context, e *env, batch uuid.UUID, status string) (uuid.UUID, error) {
	var started struct {
		BatchID uuid.UUID `json:"batch_id"`
	}
	err := s.call(ctx, http.MethodPost, "/flows/batches/"+batch.String()+"/retry",
		fmt.Appendf(nil, `{"job_statuses":[%q]}`, status), &started)
	if err != nil {
		return uuid.Nil, err
	}
	return started.BatchID, e.over(ctx, started.BatchID)
}

// over waits until a batch is over.
func (e *env) over(ctx context.Context, batch uuid.UUID) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var over bool
		err := e.pool.QueryRow(ctx, "SELECT completed_at IS NOT NULL FROM flow.batch_count WHERE batch_id = $1",
			batch).Scan(&over)
		if err != nil || over {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// control tells the simulated platform what to do.
func (s *service) control(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, s.platform.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s answered %s", method, path, res.Status)
	}
	return nil
}
