package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sample times a read, and after some of the answers the raw query for the same rows.
func (s *service) sample(ctx context.Context, e *env, r read) (took, raw []time.Duration, err error) {
	paths := r.paths
	if r.deep {
		paths = nil
		for _, path := range r.paths {
			deep, err := s.deepPaths(ctx, path)
			if err != nil {
				return nil, nil, err
			}
			paths = append(paths, deep...)
		}
	}
	// One connection, because the next request begins when the answer was read.
	began, onRaw := time.Now(), time.Duration(0)
	for i := range readWarmUp + readSamples {
		if len(took) >= readLeast && time.Since(began) > readTime {
			break
		}
		answer, d, err := s.timedRead(ctx, paths[i%len(paths)], r.body)
		if err != nil {
			return nil, nil, err
		}
		if i >= readWarmUp {
			took = append(took, d)
		}
		if i%rawEvery != 0 || onRaw > rawTime && len(raw) > 0 {
			continue
		}
		rawTook, err := r.raw(ctx, e.pool, s, answer)
		if err != nil {
			return nil, nil, fmt.Errorf("the raw query: %w", err)
		}
		onRaw += rawTook
		if i >= readWarmUp {
			raw = append(raw, rawTook)
		}
	}
	return took, raw, nil
}

func (s *service) timedRead(ctx context.Context, path, body string) (answer []byte, took time.Duration, err error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/v1"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("X-API-Key", s.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	took, err = timed(func() error {
		res, err := s.http.Do(req)
		if err != nil {
			return err
		}
		answer, err = io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s answered %s: %s", method, path, res.Status, answer)
		}
		return nil
	})
	return answer, took, err
}

// rawRead is a query by hand for the rows that an answer is made of. It reads them all and makes nothing of them.
type rawRead func(ctx context.Context, pool *pgxpool.Pool, s *service, answer []byte) (time.Duration, error)

func drain(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (time.Duration, error) {
	return timed(func() error {
		rows, err := pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		for rows.Next() {
			_ = rows.RawValues()
		}
		return rows.Err()
	})
}

var (
	idPattern  = regexp.MustCompile(`"(?:id|batch_id)":"([0-9a-f-]{36})"`)
	jobPattern = regexp.MustCompile(`"(?:id|job_id)":"([0-9a-f-]{36})\.(\d+)`)
)

// rawBatches reads the batches of an answer with their counters.
func rawBatches(ctx context.Context, pool *pgxpool.Pool, _ *service, answer []byte) (time.Duration, error) {
	var ids []uuid.UUID
	for _, m := range idPattern.FindAllSubmatch(answer, -1) {
		ids = append(ids, uuid.MustParse(string(m[1])))
	}
	return drain(ctx, pool, "SELECT b.*, c.* FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id "+
		"WHERE b.id = ANY($1) ORDER BY b.id", ids)
}

const (
	rawSlices = `SELECT s.*, (SELECT array_agg(f.body) FROM flow.fragment f WHERE f.batch_id = s.batch_id AND f.slice_no = s.no),
			(SELECT array_agg(j) FROM flow.job j WHERE j.batch_id = s.batch_id AND j.slice_no = s.no)%s
		FROM unnest($1::uuid[], $2::int[]) w(batch_id, no) CROSS JOIN LATERAL (SELECT * FROM flow.slice s WHERE s.batch_id = w.batch_id AND s.no = w.no OFFSET 0) s`
	rawPage = ", (SELECT p.body FROM flow.page p WHERE p.set_id = (SELECT page_set FROM flow.batch WHERE id " +
		"= s.batch_id) AND p.first = s.first - s.page_off)"
)

// rawRecords reads the slices in which the records of an answer are, with their jobs, fragments and pages, rawResults
// without the pages.
func rawRecords(ctx context.Context, pool *pgxpool.Pool, _ *service, answer []byte) (time.Duration, error) {
	return rawOfSlices(ctx, pool, answer, fmt.Sprintf(rawSlices, rawPage))
}

func rawResults(ctx context.Context, pool *pgxpool.Pool, _ *service, answer []byte) (time.Duration, error) {
	return rawOfSlices(ctx, pool, answer, fmt.Sprintf(rawSlices, ""))
}

func rawOfSlices(ctx context.Context, pool *pgxpool.Pool, answer []byte, sql string) (time.Duration, error) {
	var ids []uuid.UUID
	var positions []int64
	for _, m := range jobPattern.FindAllSubmatch(answer, -1) {
		at, err := strconv.ParseInt(string(m[2]), 10, 64)
		if err != nil {
			return 0, err
		}
		ids, positions = append(ids, uuid.MustParse(string(m[1]))), append(positions, at)
	}
	var nos []int32
	err := pool.QueryRow(ctx, `SELECT coalesce(array_agg(d.batch_id), '{}'), coalesce(array_agg(d.no), '{}')
		FROM (SELECT DISTINCT w.batch_id, flow.slice_at(w.batch_id, w.position) AS no FROM unnest($1::uuid[], $2::bigint[]) w(batch_id, position)) d`, ids, positions).Scan(&ids, &nos)
	if err != nil {
		return 0, err
	}
	return drain(ctx, pool, sql, ids, nos)
}

// rawFigures sums up the batches of 30 days in one query.
func rawFigures(ctx context.Context, pool *pgxpool.Pool, s *service, _ []byte) (time.Duration, error) {
	return drain(ctx, pool, `SELECT c.status, count(*), sum(c.record_count), sum(c.accepted + c.completed), sum(c.failed + c.rejected)
		FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id WHERE b.org_id = $1 AND b.created_at >= flow.clock() - interval '30 days' GROUP BY 1`, s.org)
}

// rawLedger reads the open windows of an account.
func rawLedger(ctx context.Context, pool *pgxpool.Pool, s *service, _ []byte) (time.Duration, error) {
	return drain(ctx, pool, "SELECT * FROM flow.ledger WHERE domain = $1 AND ends_at > (SELECT flow.clock())", s.domain)
}
