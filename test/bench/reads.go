package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	// readTarget is what a read may take at most, 99 times in 100, in milliseconds. smallTarget is for an organization
	// with very many batches, some of whose figures are sums over all of them.
	readTarget, smallTarget = 20, 100
	smallBatches            = 200_000
	// waitingBatches of them have a record that waits.
	waitingBatches = 5
	// readSamples of each read are taken after readWarmUp, fewer of those that take longer than readTime together, but
	// readLeast. Lists are read at deepPlaces places.
	readSamples, readLeast, readWarmUp, deepPlaces = 200, 40, 10, 12
	readTime                                       = 3 * time.Second
	// One sample of the raw query is taken for rawEvery, until they have taken rawTime together.
	rawEvery = 8
	rawTime  = time.Second
)

// reads measures reads over one connection: of a database with many jobs in few batches, then of one with very many
// batches.
func reads(ctx context.Context, e *env) ([]row, error) {
	own, err := e.apart(ctx)
	if err != nil {
		return nil, err
	}
	defer own.close()
	s, err := own.stack(ctx)
	if err != nil {
		return nil, err
	}
	records, batches := readRecords, smallBatches
	if e.records > 0 {
		records, batches = e.records, max(e.records*smallBatches/readRecords, 100)
	}
	d, err := newReadData(ctx, own, s, records)
	if err != nil {
		return nil, err
	}
	other := *s
	if err := other.admit(ctx, own, benchAccount); err != nil {
		return nil, err
	}
	small, err := newSmallData(ctx, own, &other, batches)
	if err != nil {
		return nil, err
	}
	// From here on nobody works: what is made to wait should go on waiting. This service is the one to profile.
	own.profile = e.profile
	if err := s.serve(ctx, own, idleVariable+"=yes"); err != nil {
		return nil, err
	}
	other.url = s.url
	if err := d.grow(ctx, own); err != nil {
		return nil, err
	}
	if err := small.grow(ctx, own); err != nil {
		return nil, err
	}
	large, err := readAll(ctx, own, s, d.reads(), readTarget)
	if err != nil {
		return nil, err
	}
	rest, err := readAll(ctx, own, &other, smallReads(&other), smallTarget)
	return append(large, rest...), err
}

// read is one kind of request, and the raw query that stands beside it.
type read struct {
	group, name string
	// paths are the requests, by turns; an estimate has a body.
	paths []string
	body  string
	// deep reads the list at places far from its beginning: the pages after cursors.
	deep bool
	raw  rawRead
}

func (d *readData) reads() []read {
	out := append(d.batchReads(), d.singleReads()...)
	return append(append(append(out, d.resultReads()...), d.jobReads()...), figureReads("", d.service.domain)...)
}

func (d *readData) batchReads() []read {
	list := func(name, path string, deep bool) read {
		return read{group: "lists of batches and triggers", name: name, paths: []string{path}, deep: deep,
			raw: rawBatches}
	}
	return []read{
		list("batches", "/flows/batches?limit=100", false),
		list("batches, deep", "/flows/batches?limit=10", true),
		list("batches, running", "/flows/batches?limit=100&status=running", false),
		list("batches of a definition", "/flows/batches?limit=100&definition_id="+d.flows["modify"], false),
		list("triggers", "/flows/triggers?limit=100", false),
	}
}

func (d *readData) singleReads() []read {
	batch := read{group: "one batch, job or execution", name: "batch", raw: rawBatches}
	job := read{group: batch.group, name: "job", raw: rawRecords}
	execution := read{group: batch.group, name: "execution", raw: rawRecords}
	for _, g := range d.batches {
		batch.paths = append(batch.paths, "/flows/batches/"+g.id.String())
		for range 8 {
			if g.retryOf != nil {
				continue // most positions are not there
			}
			at := rand.IntN(g.records * len(g.blocks)) //nolint:gosec // a sample
			job.paths = append(job.paths, fmt.Sprintf("/flows/jobs/%s.%d", g.id, at))
			execution.paths = append(execution.paths, fmt.Sprintf("/flows/executions/%s.%d.1", g.id, at))
		}
	}
	return []read{batch, job, execution}
}

func (d *readData) resultReads() []read {
	var first []string
	for _, g := range d.batches {
		first = append(first, "/flows/batches/"+g.id.String()+"/results?limit=100")
	}
	of := func(name, batch, query string, deep bool) read {
		return read{group: "results of a batch", name: name, paths: []string{"/flows/batches/" +
			d.named[batch].id.String() + "/results?limit=100" + query}, deep: deep, raw: rawResults}
	}
	return []read{
		{group: "results of a batch", name: "first page", paths: first, raw: rawResults},
		of("deep", "middle", "", true),
		of("of single calls, deep", "calls", "", true),
		of("1 % rejected", "percent", "&status=rejected", false),
		of("1 % rejected, deep", "percent", "&status=rejected", true),
		of("20 % apart, deep", "fifth", "", true),
		of("7 rejected", "rare", "&status=rejected", false),
		of("7 failed", "broken", "&status=failed", false),
		of("none rejected", "middle", "&status=rejected", false),
		of("retry, deep", "retry percent", "", true),
		of("retry of 20 %", "retry fifth", "", false),
		of("retry of 20 %, deep", "retry fifth", "", true),
		of("of two steps, deep", "broken", "", true),
		of("running, what waits, deep", "running", "&status=queued", true),
		of("cancelled, unprocessed, deep", "cancelled", "&status=unprocessed", true),
	}
}

// jobReads are the lists of jobs and executions, whose filters are alike.
func (d *readData) jobReads() (out []read) {
	both := func(name, jobs, executions string, deep bool) {
		if jobs != "-" {
			out = append(out, read{group: "lists of jobs", name: "jobs" + name,
				paths: []string{"/flows/jobs?limit=100" + jobs}, deep: deep, raw: rawRecords})
		}
		if executions != "-" {
			out = append(out, read{group: "lists of executions", name: "executions" + name,
				paths: []string{"/flows/executions?limit=100" + executions}, deep: deep, raw: rawResults})
		}
	}
	of := func(batch string) string { return "&batch_id=" + d.named[batch].id.String() }
	same := func(name, query string, deep bool) { both(name, query, query, deep) }
	same("", "", false)
	same(", deep", "", true)
	same(" of a batch, deep", of("middle"), true)
	same(" of single calls, deep", of("calls"), true)
	same(" of a retry, deep", of("retry percent"), true)
	same(" of a retry of 20 %, deep", of("retry fifth"), true)
	same(", 7 failed in some batches", "&status=failed", false)
	both(", rejected, deep", "&status=rejected", "-", true)
	both(", rejected in one of 500,000", "&status=rejected"+of("rare"), "-", false)
	both(", queued, deep", "&status=queued", "-", true)
	both(", started", "&status=started", "-", false)
	both(", unprocessed, deep", "&status=unprocessed", "-", true)
	both(", needs_reconcile: none", "&status=needs_reconcile", "-", false)
	both(", completed, deep", "&status=completed", "&status=completed", true)
	both(", pending", "-", "&status=pending", false)
	both(", pending, deep", "-", "&status=pending", true)
	both(", running", "-", "&status=running", false)
	both(", running, deep", "-", "&status=running", true)
	both(", failed, deep", "-", "&status=failed", true)
	both(", cancelled, deep", "-", "&status=cancelled", true)
	both(" of a job", "-", "&job_id="+d.named["percent"].id.String()+".99", false)
	return out
}

// figureReads are those that sum up, and the budgets of an account.
func figureReads(prefix, domain string) (out []read) {
	for _, period := range []string{"1h", "24h", "7d", "30d"} {
		out = append(out, read{group: prefix + "dashboard", name: "dashboard " + period,
			paths: []string{"/flows/dashboard?period=" + period}, raw: rawFigures})
	}
	for _, by := range []string{"day", "definition", "credential", "action"} {
		out = append(out, read{group: prefix + "usage", name: "usage by " + by,
			paths: []string{"/flows/usage?group_by=" + by}, raw: rawFigures})
	}
	account := "/platforms/dialer/domains/" + domain
	return append(out,
		read{group: prefix + "budgets of an account", name: "headroom", paths: []string{account + "/headroom"},
			raw: rawLedger},
		read{group: prefix + "budgets of an account", name: "estimate", paths: []string{account + "/estimate"},
			body: `{"action_id":"dialer__api__upload","record_count":1000000}`, raw: rawLedger})
}

// readAll takes samples of every read, and makes a row of each group, with the figures of its slowest read.
func readAll(ctx context.Context, e *env, s *service, list []read, target float64) (rows []row, err error) {
	place := map[string]int{}
	for _, r := range list {
		took, raw, err := s.sample(ctx, e, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		p99 := quantile(took, 0.99)
		text := "pgx " + short(quantile(raw, 0.5)) + ", " + short(quantile(raw, 0.99))
		if base := quantile(raw, 0.5); base > 0 {
			text += fmt.Sprintf(" (%.1f ×)", quantile(took, 0.5).Seconds()/base.Seconds())
		}
		line := row{what: r.group, ours: fmt.Sprintf("p50 %s, p99 %s (%s)", short(quantile(took, 0.5)), short(p99),
			r.name), raw: text,
			ratio: p99.Seconds() * 1e3, target: target, most: true, unit: "ms"}
		fmt.Fprintf(os.Stderr, "reads: %-40s %8s %8s   %s\n", r.name, short(quantile(took, 0.5)), short(p99), text)
		at, known := place[r.group]
		switch {
		case !known:
			place[r.group] = len(rows)
			rows = append(rows, line)
		case line.ratio > rows[at].ratio:
			rows[at] = line
		}
	}
	return rows, nil
}

func short(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1e3, 'f', 1, 64) + " ms" }

// deepPaths are the same list after cursors at places spread over all of it.
func (s *service) deepPaths(ctx context.Context, path string) ([]string, error) {
	var list struct {
		Total int
		Next  *string `json:"next_cursor"`
	}
	base, limit := path, ""
	if at := strings.Index(path, "limit="); at >= 0 {
		rest, after, _ := strings.Cut(path[at:], "&")
		base, limit = path[:at]+after, rest
	}
	join := "&"
	if strings.HasSuffix(base, "?") || strings.HasSuffix(base, "&") {
		join = ""
	}
	if err := s.call(ctx, "GET", base+join+"limit=1", nil, &list); err != nil {
		return nil, err
	}
	var out []string
	for i := range min(deepPlaces, list.Total-1) {
		skip := (list.Total - 2) * (i + 1) / deepPlaces
		list.Next = nil
		if err := s.call(ctx, "GET", base+join+"limit=1&skip="+strconv.Itoa(skip), nil, &list); err != nil {
			return nil, err
		}
		if list.Next != nil {
			out = append(out, base+join+limit+"&cursor="+url.QueryEscape(*list.Next))
		}
	}
	if len(out) == 0 { // a list so short has one place
		out = append(out, path)
	}
	return out, nil
}

// smallData is very many batches of one record, copies of one, of some definitions over the last 30 days.
type smallData struct {
	source      uuid.UUID
	definitions []uuid.UUID
	batches     int
}

func newSmallData(ctx context.Context, e *env, s *service, batches int) (d *smallData, err error) {
	const definitions = 20
	d = &smallData{definitions: make([]uuid.UUID, definitions), batches: batches}
	for i := range d.definitions {
		text, err := s.defineFlow(ctx, fmt.Sprintf(
			`{"name":"small %d","status":"active","steps":[{"id":"s","tasks":[%s]}]}`, i, modifyTask))
		if err != nil {
			return nil, err
		}
		if d.definitions[i], err = uuid.Parse(text); err != nil {
			return nil, err
		}
	}
	d.source, err = s.start(ctx, e, d.definitions[0].String(), sampleRows(1))
	return d, err
}

func (d *smallData) grow(ctx context.Context, e *env) error {
	return copySmall(ctx, e.pool, d.source, d.definitions, d.batches, waitingBatches)
}

func smallReads(s *service) []read {
	const prefix = "small batches: "
	list := func(name, path string, deep bool) read {
		return read{group: prefix + "lists", name: name, paths: []string{path}, deep: deep, raw: rawBatches}
	}
	records := func(name, path string, deep bool) read {
		return read{group: prefix + "jobs and executions", name: name, paths: []string{path}, deep: deep,
			raw: rawRecords}
	}
	out := []read{
		list("batches", "/flows/batches?limit=100", false),
		list("batches, deep", "/flows/batches?limit=100", true),
		list("batches, running: 5", "/flows/batches?limit=100&status=running", false),
		list("batches, completed, deep", "/flows/batches?limit=100&status=completed", true),
		list("triggers, deep", "/flows/triggers?limit=100", true),
		list("triggers, by retry: none", "/flows/triggers?limit=100&trigger_type=retry", false),
		records("jobs", "/flows/jobs?limit=100", false),
		records("jobs, deep", "/flows/jobs?limit=100", true),
		records("jobs, failed: none", "/flows/jobs?limit=100&status=failed", false),
		records("executions, pending: 5", "/flows/executions?limit=100&status=pending", false),
		records("executions, deep", "/flows/executions?limit=100", true),
	}
	return append(out, figureReads(prefix, s.domain)...)
}
