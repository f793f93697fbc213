package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/media"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/recordset"
	"flowlane/internal/run"
)

// bulk is a bulk call that is being filled. All its records have equal settings: everything but the row itself.
type bulk struct {
	outboundCall
	settings []byte
	buf      []byte
	full     bool
	// lastStart is where the last row begins.
	lastStart int
	maxRows   int
	maxBytes  int
	// keys are those of its rows, where no two may have the same.
	keys map[string]bool
	// columns are those of its table, where its rows are one whose columns are not fixed; width is what a line of it
	// takes to name them.
	columns []string
	width   int
	// upTo is how many rows the call may have while it is filled from the queue at hand.
	upTo int
}

func newBulk(r *renderer, lane db.FlowLane) *bulk {
	// Calls of a flow are much alike: as much room as the last one needed saves growing into it.
	c := &bulk{outboundCall: r.call(lane), buf: append(make([]byte, 0, r.d.bulkSize.Load()+1024), '[')}
	c.maxRows, c.maxBytes = bulkLimits(r.task.Action)
	return c
}

func (c *bulk) empty() bool { return c.records == 0 && len(c.decided) == 0 }

// fillBulk adds what is ready in a queue, as far as it fits, where its task makes calls like this one.
func (d *Dispatcher) fillBulk(ctx context.Context, c *bulk, row *queueRow) (err error) {
	defer fault.Recovered(&err)
	r := c.r
	if row.BatchID != r.batch.ID {
		if r, err = d.renderer(ctx, row); err != nil {
			return err
		}
		if r.task.Action != c.r.task.Action || r.task.CredentialID != c.r.task.CredentialID ||
			r.task.Timeout != c.r.task.Timeout {
			return nil
		}
	}
	c.upTo = min(c.maxRows, c.records+allowance(row, c.maxRows))
	had := len(c.pieces)
	if err := c.addReady(ctx, r, row); err != nil {
		return err
	}
	if len(c.pieces) > had { // else nothing of the queue waits for the call
		c.queues = append(c.queues, keyOf(row))
	}
	c.full = c.full || c.records >= c.maxRows
	return nil
}

// addReady adds what is ready in a queue while the call has room. It reads as many parts as that takes in whole pages,
// then more, where parts are smaller or records need no call, but looks at no more records than recordsPerCall.
func (c *bulk) addReady(ctx context.Context, r *renderer, row *queueRow) error {
	q := &picked{queueRow: row, calls: min((c.upTo-c.records)/recordset.PageRows(0)+2, PartsPerCall)}
	type place struct {
		part    int64
		sliceNo int32
	}
	seen, records := map[place]bool{}, 0
	for {
		if err := r.d.readParts(ctx, q); err != nil {
			return err
		}
		last := len(q.parts) < q.calls || q.calls == PartsPerCall
		parts := slices.DeleteFunc(q.parts, func(p batch.Part) bool { return seen[place{p.ID, p.SliceNo}] })
		for _, p := range parts {
			seen[place{p.ID, p.SliceNo}] = true
			records += int(p.To - p.From)
		}
		if err := c.addGroups(ctx, r, parts); err != nil {
			return err
		}
		more := min(max(c.upTo-c.records, records), recordsPerCall-records)
		if last || !c.hasRoom() || more <= 0 {
			return nil
		}
		q.calls = min(q.calls+more*len(seen)/records+1, PartsPerCall)
	}
}

// addGroups adds parts, some at a time: as many as the call may have room for are opened.
func (c *bulk) addGroups(ctx context.Context, r *renderer, parts []batch.Part) error {
	const group = 64
	for len(parts) > 0 && c.hasRoom() {
		n := min(group, len(firstRecords(parts, c.upTo-c.records)))
		if err := c.addParts(ctx, r, parts[:n]); err != nil {
			return err
		}
		parts = parts[n:]
	}
	return nil
}

// hasRoom reports whether the call may have more rows of the queue at hand.
func (c *bulk) hasRoom() bool { return !c.full && c.records < c.upTo }

// addParts adds the records of parts, as pieces of the call and of records decided without one.
func (c *bulk) addParts(ctx context.Context, r *renderer, parts []batch.Part) error {
	recs, release, err := r.open(ctx, parts)
	if err != nil {
		return err
	}
	defer release()
	for i := 0; i < len(parts) && c.hasRoom(); i++ {
		rec := recs[parts[i].SliceNo]
		_, gone := members(&parts[i], rec)
		env := rec.Envs()
		c.splitRange(parts[i], gone, func(o int32) (*run.Exception, bool) {
			if !c.takes(r.mayHaveGone(&parts[i], o, rec)) {
				return nil, false
			}
			return c.addRow(r, o, env(o))
		})
	}
	return nil
}

// splitRange takes a part off its queue from the front, as pieces that follow each other without gaps: runs of records
// that add took into the call, and one for each record that it decided, up to the first one that does not fit. gone are
// the offsets, ascending, of records that left the slice.
func (p *outboundCall) splitRange(part batch.Part, gone []int32, add func(o int32) (e *run.Exception, fits bool)) {
	piece := part
	piece.To = piece.From
	flush := func() {
		if piece.To > piece.From {
			p.pieces = append(p.pieces, run.ClaimedRange{Part: piece, Seq: int32(len(p.pieces)),
				NoCall: piece.Records() == 0})
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
			single := part
			single.From, single.To, single.LeftOut = o, o+1, nil
			p.decide(single, nil, *e)
			piece.From, piece.To = o+1, o+1
			continue
		}
		piece.To = o + 1
	}
	flush()
}

// settingsOf renders the settings of the task, those that are the same for all records only once.
func (r *renderer) settingsOf(env *expr.Env) (settings []byte, err error) {
	if r.settings != nil && r.task.Settings.Static() {
		return r.settings, nil
	}
	settings, err = r.task.Settings.Append(nil, env)
	if err == nil {
		err = r.task.Check.Params(settings)
	}
	if err == nil {
		r.settings = settings
	}
	return settings, err
}

// rowRules are what the rows of a task must fulfil beside their size. Most tasks have none, and there are millions of
// rows.
type rowRules struct {
	// keyed: a result names the rows by their keys. formed: the schema or the form of the body may refuse one. apart:
	// two may be kept from sharing a call.
	keyed, formed, apart bool
}

func rulesOf(task *definition.Task) rowRules {
	a := task.Action
	if a.Call == nil || a.Call.Records == nil {
		return rowRules{}
	}
	return rowRules{
		keyed:  a.KeyedResult(),
		formed: task.Check.Records() || provider.FormsRows(a),
		apart:  a.Call.Records.Distinct || a.Call.BodyForm == catalog.BodyCSV,
	}
}

// formless says why a row has no form in the body of the call.
func (r *renderer) formless(row []byte) error {
	if err := r.task.Check.Record(row); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return provider.CheckRow(r.task.Action, row) //nolint:wrapcheck // says everything
}

// badKey decides a record whose row has a NUL in its key: the keys of the first and the last row of a call are written
// down, and which rows these are is chance. Where a result names rows by their keys, each must have one.
func (r *renderer) badKey(offset int32, row, settings []byte) *run.Exception {
	// Few rows hold a backslash, and to look for one byte takes a fifth of the time.
	if !r.rules.keyed && (bytes.IndexByte(row, '\\') < 0 || !bytes.Contains(row, []byte(`\u0000`))) {
		return nil
	}
	field := provider.KeyField(r.task.Action, settings)
	if r.rules.keyed && provider.SameKey(keyOfRow(row, field)) == "" {
		return r.failed(offset, codeParams,
			fmt.Sprintf("The row has no %q, by which the provider's answer names it: give it a value", field))
	}
	if !strings.Contains(keyOfRow(row, field), "\x00") {
		return nil
	}
	return r.failed(offset, codeParams, fmt.Sprintf(
		"The row's key, %q, contains a NUL character: remove it from the record, or name another field as the key",
		field))
}

// addRow renders one record into the call. fits is false where the call must end before it; an exception decides the
// record without a call.
func (c *bulk) addRow(r *renderer, offset int32, env *expr.Env) (e *run.Exception, fits bool) {
	if !c.hasRoom() {
		return nil, false
	}
	if e := r.exception(offset, env); e != nil {
		return e, true
	}
	settings, err := r.settingsOf(env)
	if err != nil {
		return r.bad(offset, err), true
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
	if c.buf, err = r.task.Row.Append(c.buf, env); err == nil && r.rules.formed {
		err = r.formless(c.buf[start:])
	}
	switch tooLong := len(c.buf)+1 > c.maxBytes; {
	case err != nil:
		e = r.bad(offset, err)
	case tooLong && c.records > 0:
		c.buf, c.full = c.buf[:at], true
		return nil, false
	case tooLong:
		e = r.failed(offset, codeParams, "The record is larger than one call may be")
	default:
		e = r.badKey(offset, c.buf[start:], settings)
	}
	if e != nil {
		c.buf = c.buf[:at]
		return e, true
	}
	if r.rules.apart && (!c.distinct(r, settings, start) || !c.inTable(r, start)) {
		c.buf, c.full = c.buf[:at], true
		return nil, false
	}
	if c.records == 0 {
		c.settings = settings
		c.firstKey = keyOfRow(c.buf[start:], provider.KeyField(r.task.Action, settings))
	}
	c.records++
	c.lastStart = start
	return nil, true
}

// distinct reports whether the call may have the row that was added last. Where rows of one key would be refused
// together, or could not be told apart in the answer, the second one begins the next call.
func (c *bulk) distinct(r *renderer, settings []byte, start int) bool {
	if !r.task.Action.Call.Records.Distinct {
		return true
	}
	key := provider.SameKey(keyOfRow(c.buf[start:], provider.KeyField(r.task.Action, settings)))
	if key == "" {
		return true
	}
	if c.keys == nil {
		c.keys = map[string]bool{}
	}
	had := c.keys[key]
	c.keys[key] = true
	return !had
}

// tableMost bounds what the lines of a table take to name its columns, when it is answered as JSON.
const tableMost = 10 << 20

// inTable reports whether the call may have the row that was added last: records of different fields share a table as
// wide as all of them.
func (c *bulk) inTable(r *renderer, start int) bool {
	call := r.task.Action.Call
	if call.BodyForm != catalog.BodyCSV || len(call.Records.Columns) > 0 {
		return true
	}
	columns, more := media.Columns(c.columns, gjson.ParseBytes(c.buf[start:]))
	if !more {
		return false
	}
	width := c.width
	for _, name := range columns[len(c.columns):] {
		width += len(name) + len(`"":"",`)
	}
	if c.records > 0 && (c.records+1)*width > tableMost {
		return false
	}
	c.columns, c.width = columns, width
	return true
}

// finish makes the call of what was added; nil where nothing was.
func (c *bulk) finish() *outboundCall {
	p := &c.outboundCall
	if len(p.pieces) == 0 {
		return nil
	}
	if p.records == 0 {
		return p
	}
	c.buf = append(c.buf, ']')
	p.rows, p.params = c.buf, json.RawMessage(c.settings)
	p.lastKey = keyOfRow(p.rows[c.lastStart:len(p.rows)-1], provider.KeyField(p.r.task.Action, p.params))
	p.digest, p.keySums = provider.Digest(p.r.task.Action, p.rows), provider.KeySums(p.r.task.Action, p.params, p.rows)
	if err := p.prepare(""); err != nil {
		p.refuse(p.r.bad(0, err).Error)
		return p
	}
	for i := range p.pieces {
		p.attempt = max(p.attempt, p.pieces[i].Part.Attempt)
		if !p.pieces[i].NoCall {
			p.pieces[i].CallID = p.id
		}
	}
	p.r.d.bulkSize.Store(int64(len(p.rows)))
	return p
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
