package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/store"
)

// Tasks that work with stores: reads happen while the work is evaluated, by one query for all records of a slice; writes happen in
// the transaction that settles the work: both or neither, so that a write is done once whatever crashes.

func prepareRead(r *recordWork, params []byte) error {
	p, err := storeParamsOf(params)
	r.read = &store.Ref{Store: p.Store, Key: p.key}
	return err
}

func prepareWrite(r *recordWork, params []byte) error {
	p, err := storeParamsOf(params)
	r.write = &store.Write{Store: p.Store, Key: p.key, Layer: p.Layer, Values: p.Values}
	return err
}

type storeParams struct {
	Store, Layer string
	Key, Values  json.RawMessage
	key          string
}

var wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)

func storeParamsOf(params []byte) (p storeParams, err error) {
	if err := json.Unmarshal(params, &p); err != nil {
		return p, errors.New("store and layer must be strings")
	}
	switch {
	case wholeNumber.Match(p.Key):
		p.key = string(p.Key)
	case json.Unmarshal(p.Key, &p.key) != nil || p.key == "":
		return p, errors.New("key must be a string that is not empty, or a whole number")
	}
	return p, nil
}

// carryOut does the reads of a task.
func (t *taskWork) carryOut(ctx context.Context, conn db.DBTX, orgID uuid.UUID) error {
	var refs []store.Ref
	var readers []*recordWork
	for i := range t.records {
		if r := &t.records[i]; r.read != nil {
			refs, readers = append(refs, *r.read), append(readers, r)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	found, err := store.Read(ctx, conn, orgID, refs)
	if err != nil {
		return err
	}
	for i, r := range readers {
		if found[i].Unknown {
			r.fail(CodeStore, fmt.Sprintf("store: There is no store %q", r.read.Store))
			continue
		}
		r.output = found[i].Resolved
	}
	return nil
}

// writeStores does what tasks want written, in the order of the records. A write that is refused fails its task.
func (c *Change) writeStores(ctx context.Context, h *head, works []*sliceWork) error {
	var writes []store.Write
	for _, w := range works {
		for _, r := range w.writes {
			writes = append(writes, *r.write)
		}
	}
	if len(writes) == 0 {
		return nil
	}
	outcomes, changes, err := store.WriteAll(ctx, c.tx, h.OrgID, h.ID.String(), writes)
	if errors.Is(err, store.ErrAgain) {
		return ErrMoved
	}
	if err != nil {
		return err
	}
	for _, w := range works {
		for _, r := range w.writes {
			r.wrote(outcomes[0])
			outcomes = outcomes[1:]
			w.settle(r)
		}
	}
	c.changed = changes
	return nil
}

// wrote keeps what became of a record's write.
func (r *recordWork) wrote(o store.Outcome) {
	if len(o.Problems) == 0 {
		r.output = json.RawMessage(fmt.Sprintf(`{"created":%t}`, o.Created))
		return
	}
	said := make([]string, len(o.Problems))
	for i, p := range o.Problems {
		said[i] = strings.Join(p.At, ".") + ": " + p.Msg
	}
	r.fail(CodeStore, strings.Join(said, "; "))
}
