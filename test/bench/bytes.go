package main

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// written sums up the log of a stretch by table, its indexes together with it, without full pages. What belongs to no
// table is what commits and locks of rows without a change write.
const written = `
SELECT coalesce(t.relname, CASE WHEN w.rel IS NULL THEN 'commits' ELSE 'others' END), sum(w.bytes)::float8,
	coalesce(sum(w.bytes) FILTER (WHERE i.indexrelid IS NOT NULL), 0)::float8
FROM (SELECT (regexp_match(block_ref, 'rel \d+/\d+/(\d+)'))[1]::oid AS rel, sum(record_length - fpi_length) AS bytes
	FROM pg_get_wal_records_info($1::pg_lsn, $2::pg_lsn) GROUP BY 1) w
LEFT JOIN pg_class c ON c.relfilenode = w.rel LEFT JOIN pg_index i ON i.indexrelid = c.oid
LEFT JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid)
GROUP BY 1 HAVING sum(w.bytes) >= $3 ORDER BY 2 DESC`

// lengths measures what starts of one record each write to the log and keep, by table, and what a record of one large
// batch does. Unlike times, these hardly depend on what else the machine does. Without the extension pg_walinspect it
// says so, and measures nothing.
func lengths(ctx context.Context, e *env) ([]row, error) {
	own, err := e.apart(ctx)
	if err != nil {
		return nil, err
	}
	defer own.close()
	if _, err := own.pool.Exec(ctx, "CREATE EXTENSION pg_walinspect"); err != nil {
		return []row{{what: "log by table", ours: "not read, which needs pg_walinspect: " + err.Error()}}, nil
	}
	b, err := newSmallBench(ctx, own)
	if err != nil {
		return nil, err
	}
	defer b.lines.close()
	n := smallStarts
	if e.records > 0 {
		n = e.records
	}
	var out []row
	for _, l := range b.loads() {
		// Rows that change leave room behind, which is used again once Postgres has cleaned up. A load that found none
		// of the one before would seem to keep it.
		for range 2 {
			if err := l.send(ctx, n); err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			if err := b.vacuum(ctx); err != nil {
				return nil, err
			}
		}
		rows, err := b.lengths(ctx, &l, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		out = append(out, rows...)
	}
	rows, err := b.large(ctx)
	return append(out, rows...), err
}

// large measures what a record of one batch of a million writes to the log and keeps, its upload and its result
// included.
func (b *smallBench) large(ctx context.Context) ([]row, error) {
	n := cmp.Or(b.e.records, runRecords)
	bodies, sent := chunkBodies(sampleRows(n)), 0
	for _, body := range bodies {
		sent += len(body)
	}
	kept := map[string]float64{}
	if err := b.keeps(ctx, kept, -1/float64(n)); err != nil {
		return nil, err
	}
	before, err := b.e.cost(ctx, b.h.s)
	if err != nil {
		return nil, err
	}
	if _, err := b.h.s.runBatch(ctx, b.e, fmt.Sprintf(uploadTask, "large", `"{{ input }}"`), bodies, n); err != nil {
		return nil, err
	}
	after, err := b.e.cost(ctx, b.h.s)
	if err != nil {
		return nil, err
	}
	if err := b.keeps(ctx, kept, 1/float64(n)); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("a record of one batch of %d", n)
	raw := fmt.Sprintf("sent %d bytes", sent/n)
	return []row{
		{what: what + ", log", raw: raw, ratio: float64(after.wal-before.wal) / float64(n), unit: "bytes"},
		{what: what + ", kept", raw: raw, ratio: total(kept), unit: "bytes"},
	}, nil
}

// load is a way in which n starts of one record each come, and are through.
type load struct {
	name string
	send func(ctx context.Context, n int) error
}

// loads are those that come as fast as may be, and webhooks that come evenly, whose batches start in the commit that
// acknowledges them.
func (b *smallBench) loads() (out []load) {
	for _, w := range b.ways() {
		out = append(out, load{w.name, func(ctx context.Context, n int) error {
			_, _, err := b.burst(ctx, &w, n)
			return err
		}})
	}
	const rate = 500
	return append(out, load{fmt.Sprintf("webhooks at an even %d/s", rate), func(ctx context.Context, n int) error {
		_, err := b.stream(ctx, rate, time.Duration(n)*time.Second/rate)
		if err != nil {
			return err
		}
		return b.e.quiet(ctx)
	}})
}

func (b *smallBench) lengths(ctx context.Context, l *load, n int) ([]row, error) {
	kept, logged := map[string]float64{}, 0.0
	if err := b.keeps(ctx, kept, -1/float64(n)); err != nil {
		return nil, err
	}
	from, err := b.place(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.send(ctx, n); err != nil {
		return nil, err
	}
	to, err := b.place(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.keeps(ctx, kept, 1/float64(n)); err != nil {
		return nil, err
	}
	rows, err := b.e.pool.Query(ctx, written, from, to, n)
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	defer rows.Close()
	var out []row
	for rows.Next() {
		var table string
		var all, indexes float64
		if err := rows.Scan(&table, &all, &indexes); err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		logged += all
		text := fmt.Sprintf("%.0f bytes of it indexes, %.0f kept", indexes/float64(n), kept[table])
		out = append(out, row{what: l.name + ", log of " + table, ours: text, ratio: all / float64(n), unit: "bytes"})
	}
	return append(out, row{what: l.name + ", log without full pages", ratio: logged / float64(n) / 1e3, target: 4,
		most: true, unit: "kB"},
		row{what: l.name + ", kept", ratio: total(kept) / 1e3, target: 1.5, most: true, unit: "kB"}), rows.Err()
}

// total is the sum over all tables, in bytes.
func total(kept map[string]float64) (sum float64) {
	for _, bytes := range kept {
		sum += bytes
	}
	return sum
}

// place is where the log ends.
func (b *smallBench) place(ctx context.Context) (at string, err error) {
	err = b.e.pool.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&at)
	return at, err
}

func (b *smallBench) vacuum(ctx context.Context) error {
	_, err := b.e.pool.Exec(ctx, "VACUUM")
	return err
}

// keeps adds to the sums the sizes of all tables, vacuumed, so many times. One that is empty again, as those of queues
// and calls are, keeps nothing: its pages are those of the next rows, and how many there are tells of the longest queue
// that there ever was.
func (b *smallBench) keeps(ctx context.Context, sums map[string]float64, times float64) error {
	if err := b.vacuum(ctx); err != nil {
		return err
	}
	rows, err := b.e.pool.Query(ctx, `SELECT relname, pg_total_relation_size(oid) FROM pg_class
		WHERE relnamespace = 'flow'::regnamespace AND relkind = 'r' AND reltuples <> 0`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		var size int64
		if err := rows.Scan(&table, &size); err != nil {
			return err
		}
		sums[table] += times * float64(size)
	}
	return rows.Err()
}
