package upload

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"flowlane/internal/recordset"
)

const (
	// wantBytes is how large a chunk should be at most: small enough to show progress and to lose little, large enough
	// to be fast. A chunk of few large rows may be larger, up to recordset.MaxBodyBytes.
	wantBytes = 4 << 20
	// envelopeBytes is more than what stands around the rows of a chunk.
	envelopeBytes = 64
)

// sizes are the chunk sizes that an upload chooses from.
var sizes = [...]int{50000, 25000, 10000, 5000, 2500, 1000, 500, 250, 100, 50, 25, 10, 5, 2, 1}

// survey is what the first reading finds.
type survey struct {
	records   int64
	chunkSize int
}

// gauge follows how large the chunks of one size become.
type gauge struct {
	size, rows  int
	bytes, most int
}

func (g *gauge) add(row int) {
	if g.rows == g.size {
		g.rows, g.bytes = 0, envelopeBytes
	}
	g.rows++
	g.bytes += row + 1
	g.most = max(g.most, g.bytes)
}

// measure reads all rows once, so that nothing is sent of a file with a mistake in it, and chooses the chunk size.
func measure(ctx context.Context, source Source, size int) (survey, error) {
	gauges := make([]gauge, 0, len(sizes))
	if size > 0 {
		gauges = append(gauges, gauge{size: size, bytes: envelopeBytes})
	} else {
		for _, s := range sizes {
			gauges = append(gauges, gauge{size: s, bytes: envelopeBytes})
		}
	}
	var out survey
	err := each(ctx, source, func(row []byte) error {
		out.records++
		for i := range gauges {
			gauges[i].add(len(row))
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	limits := [...]int{wantBytes, recordset.MaxBodyBytes}
	for _, limit := range limits {
		for _, g := range gauges {
			if g.most <= limit {
				out.chunkSize = g.size
				return out, nil
			}
		}
	}
	if size > 0 {
		return out, fmt.Errorf("%d records of this file make a chunk of more than %d bytes: "+
			"choose a smaller --chunk-size", size, recordset.MaxBodyBytes)
	}
	return out, fmt.Errorf("a record is larger than %d bytes, the most that a chunk takes", recordset.MaxBodyBytes)
}

// each calls do for every row; row is valid until do returns.
func each(ctx context.Context, source Source, do func(row []byte) error) error {
	rows, closer, err := source()
	if err != nil {
		return err
	}
	defer closer.Close()
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx) //nolint:wrapcheck // explained where it arose
		}
		row, err := rows.Next()
		if err == io.EOF { //nolint:errorlint // Rows return it bare
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // names the file and line
		}
		if err := do(row); err != nil {
			return err
		}
	}
}

// read reads the rows again and hands them on as chunks, in order.
func (u *upload) read(ctx context.Context, source Source, emit func(chunk) error) error {
	var c chunk
	var ends []int
	var start int
	records := int64(0)
	flush := func() error {
		if c.index >= len(u.digests) {
			return errChanged
		}
		u.digests[c.index] = digest(c.body[start:], ends)
		c.body = append(c.body, "]}"...)
		next := c.index + 1
		if err := emit(c); err != nil {
			return err
		}
		c, ends = chunk{index: next}, ends[:0]
		return nil
	}
	err := each(ctx, source, func(row []byte) error {
		if c.body == nil {
			c.body = (*u.buffers.Get().(*[]byte))[:0] //nolint:forcetypeassert // New makes nothing else
			c.body = append(strconv.AppendInt(append(c.body, `{"chunk_index":`...), int64(c.index), 10),
				`,"records":[`...)
			start = len(c.body)
		} else {
			c.body = append(c.body, ',')
		}
		c.body = append(c.body, row...)
		ends = append(ends, len(c.body)-start)
		c.records++
		if records++; c.records == int64(u.survey.chunkSize) {
			return flush()
		}
		return nil
	})
	if err == nil && c.records > 0 {
		err = flush()
	}
	if err == nil && records != u.survey.records {
		return errChanged
	}
	return err
}

// digest hashes the rows of a chunk: text holds them one comma apart, ends says where each one ends.
func digest(text []byte, ends []int) recordset.Digest {
	rows := make([][]byte, len(ends))
	from := 0
	for i, end := range ends {
		rows[i] = text[from:end]
		from = end + 1
	}
	return recordset.HashRows(rows)
}
