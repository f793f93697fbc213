package main

import (
	"context"
	"fmt"
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

// lengths measures what starts of one record each write to the log and keep, by table. Unlike times, these hardly
// depend on what else the machine does. Without the extension pg_walinspect it says so, and measures nothing.
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
	for _, w := range b.ways() {
		if _, _, err := b.burst(ctx, &w, n); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		rows, err := b.lengths(ctx, &w, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		out = append(out, rows...)
	}
	return out, nil
}

func (b *smallBench) lengths(ctx context.Context, w *start, n int) ([]row, error) {
	kept, logged := map[string]float64{}, 0.0
	if err := b.keeps(ctx, kept, -1/float64(n)); err != nil {
		return nil, err
	}
	from, err := b.place(ctx)
	if err != nil {
		return nil, err
	}
	if _, _, err := b.burst(ctx, w, n); err != nil {
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
		out = append(out, row{what: w.name + ", log of " + table, ours: text, ratio: all / float64(n), unit: "bytes"})
	}
	sum := 0.0
	for _, bytes := range kept {
		sum += bytes
	}
	return append(out, row{what: w.name + ", log without full pages", ratio: logged / float64(n) / 1e3, target: 4,
		most: true, unit: "kB"},
		row{what: w.name + ", kept", ratio: sum / 1e3, target: 1.5, most: true, unit: "kB"}), rows.Err()
}

// place is where the log ends.
func (b *smallBench) place(ctx context.Context) (at string, err error) {
	err = b.e.pool.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&at)
	return at, err
}

// keeps adds to the sums the sizes of all tables, vacuumed, so many times. One that is empty again, as those of queues
// and calls are, keeps nothing: its pages are those of the next rows, and how many there are tells of the longest queue
// that there ever was.
func (b *smallBench) keeps(ctx context.Context, sums map[string]float64, times float64) error {
	if _, err := b.e.pool.Exec(ctx, "VACUUM"); err != nil {
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
