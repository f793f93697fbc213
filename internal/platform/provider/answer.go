package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"unsafe"

	"github.com/tidwall/gjson"

	"flowlane/internal/memory"
)

// Of an answer there is its body, in a buffer that need not grow where its length is known, and then what a flow gets
// to see of it, up to maxOutput: cut out, encoded, compressed, and once more on its way to the database.
const outputCopies = 4

// firstRead is how much is read of an answer that does not say how long it is, before there is more room; each
// further buffer is readGrowth times as large, so that the one before is at most a quarter of it.
const (
	firstRead  = 4 << 10
	readGrowth = 16
)

// outputCost is what an output takes of the memory of a process until it is stored.
func outputCost(output []byte) int64 { return int64(len(output)) * outputCopies }

// Cost is what a reading takes until it is stored.
func (r *Reading) Cost() int64 {
	n := outputCost(r.Output)
	for i := range r.Rows {
		n += outputCost(r.Rows[i].Output)
	}
	return n
}

// answerCost is what an answer of at most so many bytes takes.
func answerCost(n int64) int64 { return n + outputCopies*min(n, maxOutput) }

// readAll reads an answer, as far as the process has memory for it. Meanwhile what is not read waits with the sender,
// and the deadline of the call goes on: ctx.
func readAll(ctx context.Context, resp *http.Response, limit int64, mem *memory.Grant) ([]byte, error) {
	body, err := readWhole(ctx, resp, limit, mem)
	if err == nil {
		mem.Keep(answerCost(int64(cap(body))))
	}
	return body, err
}

// readWhole is readAll of which more may follow.
func readWhole(ctx context.Context, resp *http.Response, limit int64, mem *memory.Grant) ([]byte, error) {
	if resp.ContentLength > limit {
		return nil, ErrAnswerTooLarge
	}
	size, most := resp.ContentLength, answerCost(resp.ContentLength)
	known := size >= 0
	if !known {
		size, most = min(firstRead, limit), answerCost(limit+limit/4)
	}
	var buf []byte
	for {
		need := answerCost(size)
		if !known {
			need = answerCost(min(size+size/4, limit+limit/4))
		}
		if err := mem.Grow(ctx, need, most); err != nil {
			return nil, err
		}
		buf = append(make([]byte, 0, size+1), buf...)
		ended, err := fill(resp.Body, &buf)
		switch {
		case int64(len(buf)) > limit:
			return nil, ErrAnswerTooLarge
		case err != nil:
			return buf, err
		case ended:
			if cap(buf) > 2*len(buf) {
				buf = bytes.Clone(buf)
			}
			return buf, nil
		}
		size = min(size*readGrowth, limit)
	}
}

// fill reads until the buffer is full, or the body at its end.
func fill(body io.Reader, buf *[]byte) (ended bool, err error) {
	for b := *buf; len(b) < cap(b); *buf = b {
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			*buf = b
			return true, nil
		}
		if err != nil {
			*buf = b
			return false, err
		}
	}
	return false, nil
}

// parse reads valid JSON in place: what is taken over from it is copied, and nobody changes an answer.
func parse(body []byte) gjson.Result {
	return gjson.Parse(unsafe.String(unsafe.SliceData(body), len(body))) //nolint:gosec // see above
}
