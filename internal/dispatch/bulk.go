package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"flowlane/internal/expr"
	"flowlane/internal/provider"
	"flowlane/internal/run"
)

// bulk is a bulk call that is being filled. All its records have equal settings: everything but the row itself.
type bulk struct {
	prepared
	settings []byte
	buf      []byte
	keyField string
	full     bool
	// lastStart is where the last row begins.
	lastStart int
	maxRows   int
	maxBytes  int
	// upTo is how many rows the call may have while it is filled from the queue at hand.
	upTo int
}

func newBulk(r *renderer) *bulk {
	// Calls of a flow are much alike: as much room as the last one needed saves growing into it.
	c := &bulk{prepared: prepared{r: r, timeout: r.timeout(), attempt: 1}, buf: append(make([]byte, 0, r.d.bulkSize.Load()+1024), '[')}
	c.maxRows, c.maxBytes = bulkLimits(r.task.Action)
	return c
}

func (c *bulk) empty() bool { return c.records == 0 && len(c.decided) == 0 }

// fillBulk adds what is ready in a queue, as far as it fits.
func (d *Dispatcher) fillBulk(ctx context.Context, c *bulk, r *renderer, row *queueRow) (err error) {
	defer asError(&err)
	parts, err := d.parts(ctx, row, partsAtOnce)
	if err != nil {
		return err
	}
	c.upTo = min(c.maxRows, c.records+allowance(row, c.maxRows))
	if len(parts) == partsAtOnce && len(firstRecords(parts, c.upTo-c.records)) == partsAtOnce {
		if parts, err = d.parts(ctx, row, PartsPerCall); err != nil {
			return err
		}
	}
	const group = 64
	for len(parts) > 0 && !c.full {
		if c.records >= c.upTo {
			c.full = c.records >= c.maxRows
			break
		}
		n := min(group, len(firstRecords(parts, c.upTo-c.records)))
		if err := c.addParts(ctx, r, row, parts[:n]); err != nil {
			return err
		}
		parts = parts[n:]
	}
	return nil
}

func (c *bulk) addParts(ctx context.Context, r *renderer, row *queueRow, parts []run.Part) error {
	recs, err := r.open(ctx, parts)
	if err != nil {
		return err
	}
	defer func() {
		for _, rec := range recs {
			rec.Release()
		}
	}()
	s := settler{r: r}
	for i := range parts {
		if c.full || c.records >= c.upTo {
			return nil
		}
		c.addPart(&s, row, parts[i], recs[parts[i].SliceNo])
	}
	return nil
}

// addPart adds the records of a part, as pieces of the call and of records decided without one.
func (c *bulk) addPart(s *settler, row *queueRow, part run.Part, rec *run.Records) {
	_, gone := members(&part, rec)
	had := len(c.pieces)
	c.tile(part, gone, func(o int32) (*run.Exception, bool) {
		env := rec.Env(o)
		return c.addRow(s, o, &env)
	})
	if len(c.pieces) > had { // a queue of which nothing fits must not wait for what bars this call
		c.lane, c.orgID = row.Lane, row.OrgID
		if n := len(c.queues); n == 0 || c.queues[n-1] != keyOf(row) {
			c.queues = append(c.queues, keyOf(row))
		}
	}
}

// tile takes a part off its queue from the front, as pieces that follow each other without gaps: runs of records that add
// took into the call, and one for each record that it decided, up to the first one that does not fit. gone are the offsets,
// ascending, of records that left the slice.
func (p *prepared) tile(part run.Part, gone []int32, add func(o int32) (e *run.Exception, fits bool)) {
	piece := part
	piece.To = piece.From
	flush := func() {
		if piece.To > piece.From {
			p.pieces = append(p.pieces, run.Piece{Part: piece, Seq: int32(len(p.pieces)), Decided: piece.Records() == 0})
		}
		piece.From, piece.LeftOut = piece.To, nil
	}
	for o := part.From; o < part.To; o++ {
		if len(gone) > 0 && gone[0] == o {
			gone = gone[1:]
			piece.To = o + 1
			piece.LeftOut = append(piece.LeftOut, o)
			continue
		}
		e, fits := add(o)
		if !fits {
			break
		}
		if e != nil {
			flush()
			p.decide(part, *e)
			piece.From, piece.To = o+1, o+1
			continue
		}
		piece.To = o + 1
	}
	flush()
}

// settler renders the settings of one task, those that are the same for all records only once.
type settler struct {
	r        *renderer
	settings []byte
}

func (s *settler) render(env *expr.Env) ([]byte, error) {
	if s.settings != nil && s.r.task.Settings.Static() {
		return s.settings, nil
	}
	var err error
	s.settings, err = s.r.task.Settings.Append(nil, env)
	return s.settings, err
}

// keyWithNUL returns the name of a row's key field where the key has a NUL; else nothing. The keys of the first and the last row of a call
// are written down, and which rows these are is chance.
func (s *settler) keyWithNUL(row, settings []byte) string {
	if !bytes.Contains(row, []byte(`\u0000`)) {
		return ""
	}
	field := provider.KeyField(s.r.task.Action, settings)
	if !strings.Contains(keyOfRow(row, field), "\x00") {
		return ""
	}
	return field
}

func nulInKey(field string) string {
	return fmt.Sprintf("The row's key, %q, contains a NUL character: remove it from the record, or name another field as the key", field)
}

// addRow renders one record into the call. fits is false where the call must end before it; an exception decides the
// record without a call.
func (c *bulk) addRow(s *settler, offset int32, env *expr.Env) (e *run.Exception, fits bool) {
	if c.records >= c.upTo {
		c.full = c.records >= c.maxRows
		return nil, false
	}
	if ex, ok := s.r.exception(offset, env); !ok {
		return &ex, true
	}
	settings, err := s.render(env)
	if err != nil {
		ex := s.r.bad(offset, err)
		return &ex, true
	}
	if c.records > 0 && !bytes.Equal(settings, c.settings) {
		c.full = true
		return nil, false
	}
	at := len(c.buf)
	if c.records > 0 {
		c.buf = append(c.buf, ',')
	}
	start := len(c.buf)
	if c.buf, err = s.r.task.Row.Append(c.buf, env); err != nil {
		c.buf = c.buf[:at]
		ex := s.r.bad(offset, err)
		return &ex, true
	}
	if len(c.buf)+1 > c.maxBytes {
		if c.records == 0 {
			c.buf = c.buf[:at]
			ex := run.Exception{Offset: offset, Kind: run.TraceFailed, Error: s.r.failure(codeParams, "The record is larger than one call may be")}
			return &ex, true
		}
		c.buf = c.buf[:at]
		c.full = true
		return nil, false
	}
	if field := s.keyWithNUL(c.buf[start:], settings); field != "" {
		c.buf = c.buf[:at]
		ex := run.Exception{Offset: offset, Kind: run.TraceFailed, Error: s.r.failure(codeParams, nulInKey(field))}
		return &ex, true
	}
	if c.records == 0 {
		c.settings = append([]byte(nil), settings...)
		c.keyField = provider.KeyField(s.r.task.Action, c.settings)
		c.firstKey = keyOfRow(c.buf[start:], c.keyField)
	}
	c.records++
	c.lastStart = start
	return nil, true
}

// finish makes the call of what was added; nil where nothing was.
func (c *bulk) finish() *prepared {
	if len(c.pieces) == 0 {
		return nil
	}
	p := &c.prepared
	for i := range p.pieces {
		p.attempt = max(p.attempt, p.pieces[i].Part.Attempt)
	}
	if p.records == 0 {
		return p
	}
	p.id = newID()
	for i := range p.pieces {
		if !p.pieces[i].Decided {
			p.pieces[i].CallID = p.id
		}
	}
	c.buf = append(c.buf, ']')
	p.rows, p.params = c.buf, json.RawMessage(c.settings)
	p.lastKey = keyOfRow(p.rows[c.lastStart:len(p.rows)-1], c.keyField)
	p.digest = provider.Digest(c.r.task.Action, p.rows)
	var err error
	action := c.r.task.Action
	if p.request, err = provider.Prepare(c.r.svc, action, p.params, p.rows, c.r.secret(), ""); err != nil {
		return c.fail(err)
	}
	over, err := provider.ExclusiveOver(action, p.params)
	if err != nil {
		return c.fail(err)
	}
	p.exclusive = exclusiveKey(over)
	p.check = provider.OutcomeCheck(action, p.params)
	c.r.d.bulkSize.Store(int64(len(p.rows)))
	return p
}

// fail has every record of a call fail that cannot be rendered.
func (c *bulk) fail(err error) *prepared {
	c.refuse(c.r.bad(0, err).Error)
	return &c.prepared
}

// keyOfRow returns the key of a row: a string's text, or a number as it is written.
func keyOfRow(row []byte, field string) string {
	if field == "" {
		return ""
	}
	out := make([][]byte, 1)
	if err := expr.ScanFields(row, []string{field}, out); err != nil || out[0] == nil {
		return ""
	}
	var text string
	if json.Unmarshal(out[0], &text) == nil {
		return text
	}
	return string(out[0])
}
