package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// copyBaseline is raw COPY: the rows into a table with one jsonb column, over one connection, the bytes of the COPY
// stream made beforehand.
type copyBaseline struct {
	e      *env
	stream []byte
}

func newCopyBaseline(ctx context.Context, e *env, rows [][]byte) (*copyBaseline, error) {
	_, err := e.pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS bench; CREATE TABLE IF NOT EXISTS bench.copied (doc jsonb)")
	if err != nil {
		return nil, fmt.Errorf("create the table of the baseline: %w", err)
	}
	return &copyBaseline{e, append(bytes.Join(rows, []byte("\n")), '\n')}, nil
}

func (c *copyBaseline) run(ctx context.Context) (time.Duration, error) {
	conn, err := c.e.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "TRUNCATE bench.copied"); err != nil {
		return 0, err
	}
	c.e.settle(ctx)
	return timed(func() error {
		_, err := conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(c.stream), "COPY bench.copied (doc) FROM STDIN")
		return err
	})
}
