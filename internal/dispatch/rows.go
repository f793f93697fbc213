package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// success settles the records of a call that was carried out, as its answer says of each. Those of which it says
// nothing go again where that does no harm; else they stay with the call, for a person.
func (s *settlement) success(call *openCall, v *outcome) {
	open := int32(0)
	if Uncertain(call.State, call.OutcomeCheck, false) != stateSettled {
		open = call.open(v)
	}
	if open == 0 {
		s.results = append(s.results, s.ofRows(call, v, call.parts)...)
		s.move(call, v, stateSettled, time.Time{})
		return
	}
	s.partly = append(s.partly, partly{call, v})
	call.settled = call.Records - call.Resolved - open
	unsaid := *v
	unsaid.reading.Kind, unsaid.reading.Reason, unsaid.reading.Status = provider.Unknown, provider.ReasonUnsaid,
		v.status
	s.move(call, &unsaid, stateUnresolved, time.Time{})
}

// open is how many records of a call its answer says nothing of, and nobody else.
func (c *openCall) open(v *outcome) (n int32) {
	for _, row := range v.reading.Rows {
		said := func(r db.ResolutionsOfCallRow) bool { return int(r.CallRow) == row.Row }
		if row.Kind == provider.RowOpen && !slices.ContainsFunc(c.resolved, said) {
			n++
		}
	}
	return n
}

// ofRows is how the records of parts of a call came out. Those that an answer leaves open, and that must not go again,
// are EntryUnknown.
func (s *settlement) ofRows(call *openCall, v *outcome, parts []batch.Part) []run.Result {
	out := make([]run.Result, 0, len(parts))
	row, rows, gone := 0, v.reading.Rows, call.resolved
	for i := range parts {
		p := &parts[i]
		r := s.result(call, p, v)
		r.Output = v.reading.Output
		for _, o := range p.Offsets() {
			for len(gone) > 0 && int(gone[0].CallRow) == row { // a person has settled it
				row, gone = row+1, gone[1:]
			}
			for len(rows) > 0 && rows[0].Row < row {
				rows = rows[1:]
			}
			if len(rows) > 0 && rows[0].Row == row {
				r.Exceptions = append(r.Exceptions, s.ofRow(call, v, p, o, &rows[0]))
				rows = rows[1:]
			}
			row++
		}
		out = append(out, r)
	}
	return out
}

// ofRow is how one record came out, differently from the others of its call.
func (s *settlement) ofRow(call *openCall, v *outcome, p *batch.Part, offset int32,
	row *provider.RowOutcome) run.Exception {
	e := run.Exception{Offset: offset, Kind: batch.EntryRejected}
	switch row.Kind {
	case provider.RowAccepted:
		return run.Exception{Offset: offset, Kind: batch.EntryOK, Output: row.Output}
	case provider.RowOpen:
		if Uncertain(call.State, call.OutcomeCheck, false) != stateSettled {
			return run.Exception{Offset: offset, Kind: batch.EntryUnknown}
		}
		e.Kind = batch.EntryFailed
		e.Error = s.at(p, &batch.JobError{Code: batch.CodeUnknown, Message: explainUnknown(provider.ReasonUnsaid),
			ProviderStatus: v.status})
	default:
		e.Error = s.at(p, &batch.JobError{Code: codeRejected, Message: "The provider rejected the record",
			ProviderCode: row.Code, ProviderMessage: row.Message})
	}
	if _, task := s.task(p); row.Kind != provider.RowRejected && int(p.Attempt) < task.Retry.MaxAttempts {
		if e.Kind = batch.EntryRetry; !s.secondHand(call, v) { // else that may have been done
			e.RetryAt = s.now.Add(max(task.Retry.Delay(int(p.Attempt), s.d.Random()), v.reading.RetryAfter))
		}
	}
	return e
}

// partly is a call whose answer settles some of its records and leaves others open.
type partly struct {
	call *openCall
	v    *outcome
}

// splitting is what comes of records, those of calls that are settled partly included.
type splitting struct {
	results               []run.Result
	uncertain, unresolved []batch.Part
}

// splitOff takes the records that answers leave open out of the parts of the others, which are settled. It comes before
// all else of a change.
func (s *settlement) splitOff(ctx context.Context, tx pgx.Tx, change *run.Change) (out splitting, err error) {
	out = splitting{slices.Clip(s.results), slices.Clip(s.uncertain), slices.Clip(s.unresolved)}
	for _, p := range s.partly {
		results, err := s.cutOpen(ctx, tx, change, p)
		if err != nil {
			return out, err
		}
		for _, r := range results {
			if len(r.Exceptions) == 0 || r.Exceptions[0].Kind != batch.EntryUnknown {
				out.results = append(out.results, r)
				continue
			}
			if r.From == batch.Started {
				out.uncertain = append(out.uncertain, r.Part)
			}
			if r.From != batch.Unresolved {
				out.unresolved = append(out.unresolved, r.Part)
			}
		}
	}
	return out, nil
}

// cutOpen has every record of a call that its answer leaves open stand in a part of its own.
func (s *settlement) cutOpen(ctx context.Context, tx pgx.Tx, change *run.Change, p partly) ([]run.Result, error) {
	parts := p.call.parts
	for {
		results := s.ofRows(p.call, p.v, parts)
		part, offset := together(results)
		if part == nil {
			return results, nil
		}
		if err := change.Cut(ctx, part, offset); err != nil {
			return nil, err //nolint:wrapcheck // says everything
		}
		rows, err := s.d.q.PartsOfCall(ctx, tx, []uuid.UUID{p.call.ID})
		if err != nil {
			return nil, fmt.Errorf("read the parts of a call: %w", err)
		}
		parts = parts[:0:0]
		for i := range rows {
			parts = append(parts, *sentPart(&rows[i]))
		}
	}
}

// together is an open record that stands in a stored part with others; nil for none.
func together(results []run.Result) (part *batch.Part, offset int32) {
	for i := range results {
		p := &results[i].Part
		alone := p.Records() == 1 && (i == 0 || results[i-1].Part.ID != p.ID) && (i == len(results)-1 ||
			results[i+1].Part.ID != p.ID)
		for _, e := range results[i].Exceptions {
			if e.Kind == batch.EntryUnknown && !alone {
				return p, e.Offset
			}
		}
	}
	return nil, 0
}
