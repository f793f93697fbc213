package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"flowlane/internal/account"
	"flowlane/internal/batch/query"
	"flowlane/internal/run"
)

// The outputs of an execution can be hundreds of megabytes. The generated server encodes it with a mark in the place
// of each large one, and the recorder reads them one by one and writes them there.

// outputs are those that are missing in an encoded execution.
type outputs struct {
	ctx  context.Context //nolint:containedctx // of the request, for what is read while its answer is written
	runs *run.Service
	// mark begins the text that stands for an output, before its number.
	mark   string
	stored []*query.StoredOutput
	// oneLine: no line of an output may end.
	oneLine bool
	// release gives the room back that was waited for.
	release func()
}

// leaveOutputs puts marks in the places of large outputs. It waits for room, until the answer is written.
func (h executionHandler) leaveOutputs(ctx context.Context, steps []query.ExecutionStep) error {
	left, err := h.markOutputs(ctx, steps)
	if known := exchangeOf(ctx); err == nil && len(left.stored) > 0 && known.lists != nil {
		known.release, known.outputs = left.release, left
	}
	return err
}

// markOutputs is leaveOutputs for who writes the execution by itself, and gives the room back.
func (h executionHandler) markOutputs(ctx context.Context, steps []query.ExecutionStep) (*outputs, error) {
	left := outputs{ctx: ctx, release: func() {}, runs: h.runs, mark: uuid.NewString() + "/"}
	for i := range steps {
		for j := range steps[i].Tasks {
			t := &steps[i].Tasks[j]
			if t.Stored != nil {
				t.Output = json.RawMessage(`"` + left.mark + strconv.Itoa(len(left.stored)) + `"`)
				left.stored = append(left.stored, t.Stored)
			}
		}
	}
	known := exchangeOf(ctx)
	if len(left.stored) == 0 || known.lists == nil {
		return &left, nil
	}
	held, err := known.lists.take(ctx, account.FromContext(ctx).OrgID)
	if err != nil {
		return nil, err
	}
	left.release = held.release
	return &left, nil
}

// write writes an encoded execution with the outputs that it lacks.
func (o *outputs) write(w http.ResponseWriter, doc []byte) (int, error) {
	n := len(doc)
	for i, stored := range o.stored {
		before, after, found := bytes.Cut(doc, []byte(`"`+o.mark+strconv.Itoa(i)+`"`))
		if !found { // an error came instead
			break
		}
		output, err := o.runs.Output(o.ctx, stored)
		if err != nil {
			return 0, fmt.Errorf("output %d of an execution: %w", i, err)
		}
		var line bytes.Buffer
		if o.oneLine && bytes.ContainsAny(output, "\r\n") && json.Compact(&line, output) == nil {
			output = line.Bytes()
		}
		for _, text := range [][]byte{before, output} {
			if _, err := w.Write(text); err != nil {
				return 0, err //nolint:wrapcheck // a writer between writers
			}
		}
		doc = after
	}
	if _, err := w.Write(doc); err != nil {
		return 0, err //nolint:wrapcheck // a writer between writers
	}
	return n, nil
}
