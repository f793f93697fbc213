package flowlane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// UploadOptions say how records are uploaded; zero is good.
type UploadOptions struct {
	// ChunkSize is the number of records in each request, 1000 if 0; a request may have 16777216 bytes.
	ChunkSize int
	// Concurrency is the number of requests at a time, 4 if 0.
	Concurrency int
	// Metadata are notes of yours, kept with the set.
	Metadata map[string]any
	// OnProgress is called after each request with the number of records that are stored by then.
	OnProgress func(records int)
}

// Records makes records of values that become JSON objects.
func Records[T any](values ...T) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for _, v := range values {
			text, err := json.Marshal(v)
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

// notUTF8 is what is wrong with a line. It must not get as far as json.Marshal, which stores U+FFFD for what it cannot
// read.
func notUTF8(line int) error {
	return fmt.Errorf(`line %d is not UTF-8: save the file as UTF-8 (in Excel: "CSV UTF-8")`, line)
}

// NDJSON reads records of which each is a line; they are sent as they are, so that numbers keep every digit. What is
// not UTF-8 is refused.
func NDJSON(r io.Reader) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		lines, number := bufio.NewReader(r), 0
		for {
			line, err := lines.ReadBytes('\n')
			number++
			if !utf8.Valid(line) {
				yield(nil, fmt.Errorf("ndjson: %w", notUTF8(number)))
				return
			}
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line, nil) {
				return
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, fmt.Errorf("ndjson: %w", err))
				}
				return
			}
		}
	}
}

// CSV reads records of rows under a row of column names, of which no two are the same; every value is a string. A byte
// order mark in front is not part of the first name. What is not UTF-8 is refused.
func CSV(r io.Reader) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		text := bufio.NewReader(r)
		if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
			_, _ = text.Discard(3)
		}
		rows := csv.NewReader(text)
		names, err := readRow(rows)
		if twice, found := repeated(names); found && err == nil {
			err = fmt.Errorf("two columns are called %q", twice)
		}
		for err == nil {
			var row []string
			if row, err = readRow(rows); err != nil {
				break
			}
			record := make(map[string]string, len(names))
			for i, name := range names {
				record[name] = row[i]
			}
			text, failed := json.Marshal(record)
			if !yield(text, failed) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, fmt.Errorf("csv: %w", err))
		}
	}
}

// readRow is the next row, all of it UTF-8.
func readRow(rows *csv.Reader) ([]string, error) {
	row, err := rows.Read()
	if err != nil {
		return nil, err //nolint:wrapcheck // CSV wraps it
	}
	for i, value := range row {
		if utf8.ValidString(value) {
			continue
		}
		line, _ := rows.FieldPos(i)
		for part := range strings.SplitSeq(value, "\n") {
			if !utf8.ValidString(part) {
				break
			}
			line++
		}
		return nil, notUTF8(line)
	}
	return row, nil
}

// repeated is a name that stands twice, if there is one.
func repeated(names []string) (name string, found bool) {
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return name, true
		}
		seen[name] = true
	}
	return "", false
}

// Upload stores records and seals their set, which a trigger can then use. A set whose upload fails is deleted.
func (c *Client) Upload(ctx context.Context, records iter.Seq2[json.RawMessage, error],
	o UploadOptions) (RecordSet, error) {
	if o.ChunkSize == 0 {
		o.ChunkSize = 1000
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	set, err := c.CreateRecordSet(ctx, &RecordSetCreate{ChunkSize: Ptr(int64(o.ChunkSize)), Metadata: o.Metadata})
	if err != nil {
		return RecordSet{}, err
	}
	total, err := c.append(ctx, set.ID, records, o)
	if err == nil {
		if set, err = c.SealRecordSet(ctx, set.ID, &RecordSetSeal{ExpectedCount: int64(total)}); err == nil {
			return set, nil
		}
	}
	c.cleanUp(ctx, set.ID)
	return RecordSet{}, err
}

// cleanUp tries once to delete a set, also after the end of ctx, and not for long: who waits for the error of the upload
// has a deadline, and the set would expire.
func (c *Client) cleanUp(ctx context.Context, set string) {
	bound := c.longestCleanUp
	if bound == 0 {
		bound = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	once := *c
	once.Retries = -1
	_ = once.DeleteRecordSet(ctx, set)
}

// append sends the chunks, some of them side by side, and returns the number of records.
func (c *Client) append(ctx context.Context, set string, records iter.Seq2[json.RawMessage, error],
	o UploadOptions) (total int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	var mu sync.Mutex
	stored := 0
	free := make(chan struct{}, o.Concurrency)
	send := func(index int, chunk []json.RawMessage) {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			text := fmt.Appendf(nil, `{"chunk_index":%d,"records":[%s]}`, index, bytes.Join(asBytes(chunk),
				[]byte(",")))
			path := "/data/record-sets/" + url.PathEscape(set) + "/records"
			if err := c.do(ctx, call{"AppendRecords", "POST", path, nil, json.RawMessage(text)}, nil); err != nil {
				cancel(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			stored += len(chunk)
			if o.OnProgress != nil {
				o.OnProgress(stored)
			}
		})
	}
	var chunk []json.RawMessage
	index := 0
	for record, err := range records {
		if err != nil {
			cancel(err)
		}
		if ctx.Err() != nil {
			break
		}
		total++
		if chunk = append(chunk, record); len(chunk) == o.ChunkSize {
			send(index, chunk)
			index, chunk = index+1, nil
		}
	}
	if len(chunk) > 0 && ctx.Err() == nil {
		send(index, chunk)
	}
	running.Wait()
	return total, context.Cause(ctx)
}

func asBytes(chunk []json.RawMessage) [][]byte {
	out := make([][]byte, len(chunk))
	for i, r := range chunk {
		out[i] = r
	}
	return out
}
