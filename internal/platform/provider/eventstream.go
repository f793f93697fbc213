package provider

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"flowlane/internal/memory"
)

func isEventStream(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return media == "text/event-stream"
}

// readMessage reads a stream of events up to the one with the answer to the message of that id. Other messages of the
// server, such as notes of progress, are passed over; together they may be as large as an answer.
func readMessage(ctx context.Context, body io.Reader, id string, limit int64, mem *memory.Grant) ([]byte, error) {
	events := &eventReader{r: bufio.NewReader(body)}
	for left := limit; ; {
		events.ended = false
		event, err := readWhole(ctx, &http.Response{Body: io.NopCloser(events), ContentLength: -1}, left, mem)
		if err != nil {
			return nil, err
		}
		if data := dataOf(event); answers(data, id) {
			mem.Keep(answerCost(int64(cap(event))))
			return data, nil
		}
		if left -= int64(len(event)); left <= 0 {
			return nil, ErrAnswerTooLarge
		}
		if events.over {
			return nil, io.ErrUnexpectedEOF
		}
	}
}

// answers reports whether a message is the answer to the one of that id.
func answers(message []byte, id string) bool {
	if !validJSON(message) {
		return false
	}
	doc := parse(message)
	return doc.Get("id").String() == id && (doc.Get("result").Exists() || doc.Get("error").Exists())
}

// dataOf puts the data of an event together, within its own bytes.
func dataOf(event []byte) []byte {
	out := event[:0]
	lines := 0
	for len(event) > 0 {
		line := event
		if end := bytes.IndexAny(event, "\r\n"); end >= 0 {
			line, event = event[:end], event[end+1:]
		} else {
			event = nil
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		if lines++; lines > 1 {
			out = append(out, '\n')
		}
		out = append(out, bytes.TrimPrefix(data, []byte(" "))...)
	}
	return out
}

// eventReader reads one event at a time: it ends behind the empty line that ends an event, until ended is set back.
type eventReader struct {
	r *bufio.Reader
	// length is that of the line so far, cr that a carriage return ended the one before.
	length      int
	cr          bool
	ended, over bool
}

func (e *eventReader) Read(p []byte) (int, error) {
	if e.ended {
		return 0, io.EOF
	}
	if _, err := e.r.Peek(1); err != nil {
		e.over = errors.Is(err, io.EOF)
		return 0, err //nolint:wrapcheck // io.EOF must stay what it is
	}
	head, _ := e.r.Peek(min(e.r.Buffered(), len(p)))
	n := 0
	for ; n < len(head) && !e.ended; n++ {
		e.see(head[n])
	}
	copy(p, head[:n])
	_, _ = e.r.Discard(n) // as many are there
	return n, nil
}

func (e *eventReader) see(c byte) {
	switch {
	case c == '\n' && e.cr: // the rest of a line's end
		e.cr = false
		return
	case c != '\n' && c != '\r':
		e.length, e.cr = e.length+1, false
		return
	}
	e.ended = e.length == 0
	e.length, e.cr = 0, c == '\r'
}
