package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/klauspost/compress/s2"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
)

// Keep says of which calls it is kept what they sent and were answered.
type Keep string

// The values of Keep.
const (
	KeepAll    Keep = "all"
	KeepFailed Keep = "failed"
	KeepNone   Keep = "none"
)

// exchangeDetail is what is kept of a call beside what calls are looked for by.
type exchangeDetail struct {
	*provider.Exchange
	Message         string `json:"message,omitempty"`
	ProviderMessage string `json:"provider_message,omitempty"`
}

// detailDict is what details mostly consist of: a small one takes half the bytes with it. Stored details cannot be read
// without it: another one needs another format.
var detailDict = s2.MakeDict([]byte(
	`"provider_message":"","failed_at":"connect","message":"The provider refused the call (status 422)"`+
		`{"error":{"code":"","message":"","details":[]},"errors":[{"detail":"","title":""}],"id":"","status":""}`+
		`{"method":"DELETE","url":"https://api.","request":{"size":0},"response":{"status":200,"headers":{`+
		`"content-type":"application/json; charset=utf-8","date":"Thu, 01 Jan 2026 00:00:00 GMT","etag":"",`+
		`"retry-after":"","server":"nginx","x-ratelimit-limit":"","x-ratelimit-remaining":"","x-ratelimit-reset":"",`+
		`"x-request-id":""},"body":{"size":2,"text":"{\"`+
		`"}},"response":{"status":204,"headers":{"date":"Thu, 01 Jan 2026 00:00:00 GMT"},"body":{"size":0}}}`+
		`{"method":"POST","url":"http://{"method":"POST","url":"https://","request":{"size":1,"text":"{\"id\":\"`), nil)

const (
	// detailFormat is the first byte of a detail.
	detailFormat = 1
	// detailMost is how much a detail holds, unpacked.
	detailMost = 1 << 20
)

var errDetail = errors.New("it is in another format, or damaged")

func (e *exchangeDetail) pack() []byte {
	text, _ := json.Marshal(e) // texts and numbers: cannot fail
	return append([]byte{detailFormat}, detailDict.Encode(nil, text)...)
}

// unpackDetail reads a detail; an empty one says nothing.
func unpackDetail(packed []byte) (e exchangeDetail, err error) {
	text, err := DetailText(packed)
	if err == nil && text != nil {
		err = json.Unmarshal(text, &e)
	}
	return e, err
}

// DetailText unpacks the detail of an exchange as it is stored: what a call sent and was answered, with secrets masked,
// as a JSON object. It is nil for an empty one.
func DetailText(packed []byte) ([]byte, error) {
	if len(packed) == 0 {
		return nil, nil
	}
	if n, err := s2.DecodedLen(packed[1:]); packed[0] != detailFormat || err != nil || n > detailMost {
		return nil, errDetail
	}
	return detailDict.Decode(nil, packed[1:]) //nolint:wrapcheck // says everything
}

// failed reports whether an outcome is no success, or one whose status would not say so.
func (v *outcome) failed() bool {
	k := v.reading.Kind
	return k != provider.Success && k != provider.Pending || v.status != 0 && v.status/100 != 2
}

// exchanged notes what a call sent and was answered, where that is kept.
func (d *Dispatcher) exchanged(v *outcome, answer *provider.Answer) {
	v.status = answer.Status
	if d.opts.Keep == KeepNone || d.opts.Keep == KeepFailed && !v.failed() {
		return
	}
	e := answer.Exchange(&v.call.request)
	v.exchange = exchangeDetail{Exchange: &e}
}

// The purposes of an exchange.
const (
	PurposeCall   = "call"
	PurposeLookup = "lookup"
	PurposePoll   = "poll"
)

// questionsKept is how many of the questions about a call are kept, the newest.
const questionsKept = 20

// keepQuestion keeps what a question about the call sent and was answered, where the call itself is kept. That it fails
// stops nobody.
func (l *lookup) keepQuestion(ctx context.Context, p *outboundCall, ans *provider.Answer, reading *provider.Reading) {
	v := outcome{reading: *reading, status: ans.Status}
	if l.d.opts.Keep == KeepNone || l.d.opts.Keep == KeepFailed && !v.failed() {
		return
	}
	e := ans.Exchange(&p.request)
	detail := exchangeDetail{Exchange: &e}
	in := db.ExchangeAskParams{OrgID: l.row.OrgID, About: l.row.ID, ID: p.id, Purpose: PurposeLookup,
		Others: questionsKept - 1, ActionID: p.r.task.Action.ID,
		CredentialID: p.r.task.CredentialID.UUID, Outcome: string(reading.Kind), Failed: v.failed(),
		Status:   int16(ans.Status),
		QueuedAt: l.row.NextCheckAt, ClaimedAt: p.written.ClaimedAt, SentAt: ans.StartedAt, AnsweredAt: ans.FinishedAt}
	if l.row.State == stateAwaiting {
		in.Purpose = PurposePoll
	}
	if in.ClaimedAt.IsZero() { // no budget is spent
		in.ClaimedAt = ans.StartedAt
	}
	if failed := explain(reading); failed != nil {
		in.Code, in.ProviderCode = failed.Code, failed.ProviderCode
		detail.Message, detail.ProviderMessage = failed.Message, failed.ProviderMessage
	}
	in.Detail = detail.pack()
	if err := l.d.q.ExchangeAsk(ctx, l.d.Pool, in); err != nil && ctx.Err() == nil {
		l.d.opts.Log.Warn("keep a question about a call", "call", l.row.ID, "error", err)
	}
}

// exchanges are those that a settlement writes.
type exchanges struct {
	rows db.ExchangeInsertParams
	// more are their batches but for the first of each.
	more db.ExchangeBatchInsertParams
}

// add has an exchange written once: with what is known of its call first.
func (e *exchanges) add(keep Keep, call *openCall, v *outcome) {
	if call.State != stateIntent || len(call.parts) == 0 || keep == KeepNone || keep == KeepFailed && !v.failed() {
		return
	}
	of := call.FlowCall
	if p := v.call; p != nil { // of which the row, known from memory, may not say everything
		of.ActionID, of.OrgID, of.Lane, of.CredentialID = p.r.task.Action.ID, p.orgID, p.lane,
			&p.r.task.CredentialID.UUID
		of.Attempt, of.Records = max(p.attempt, 1), int32(p.records)
	}
	var failure batch.JobError
	if failed := explain(&v.reading); failed != nil {
		failure = *failed
		v.exchange.Message, v.exchange.ProviderMessage = failed.Message, failed.ProviderMessage
	}
	r := &e.rows
	e.addBatches(call, v.failed())
	r.OrgIds, r.Ids, r.Domains = append(r.OrgIds, of.OrgID), append(r.Ids, of.ID), append(r.Domains, of.Domain)
	r.ActionIds = append(r.ActionIds, of.ActionID)
	r.CredentialIds, r.Lanes = append(r.CredentialIds, pg.Value(of.CredentialID)), append(r.Lanes, string(of.Lane))
	r.Attempts, r.Records = append(r.Attempts, of.Attempt), append(r.Records, of.Records)
	r.Outcomes, r.Statuses = append(r.Outcomes, string(v.reading.Kind)), append(r.Statuses, int16(v.status))
	r.Codes, r.ProviderCodes = append(r.Codes, failure.Code), append(r.ProviderCodes, failure.ProviderCode)
	r.QueuedAts = append(r.QueuedAts, call.parts[0].QueuedAt)
	r.ClaimedAts, r.SentAts = append(r.ClaimedAts, of.ClaimedAt), append(r.SentAts, v.startedAt)
	r.AnsweredAts, r.Details = append(r.AnsweredAts, v.finishedAt), append(r.Details, v.exchange.pack())
}

// addBatches says which records of which batches a call carried: those of the first with the exchange itself.
func (e *exchanges) addBatches(call *openCall, failed bool) {
	var all []*batch.Part // the first of each batch
	positions := map[uuid.UUID][]string{}
	for i := range call.parts {
		p := &call.parts[i]
		if positions[p.BatchID] == nil {
			all = append(all, p)
		}
		positions[p.BatchID] = append(positions[p.BatchID], ranges(p)...)
	}
	text := func(p *batch.Part) string { return "{" + strings.Join(positions[p.BatchID], ",") + "}" }
	r, m, first := &e.rows, &e.more, all[0]
	r.BatchIds, r.StepNos, r.TaskNos = append(r.BatchIds, first.BatchID), append(r.StepNos, first.StepNo),
		append(r.TaskNos, first.TaskNo)
	r.Positions = append(r.Positions, text(first))
	var ids []string
	for _, p := range all[1:] {
		ids = append(ids, p.BatchID.String())
		m.BatchIds, m.CallIds, m.Failed = append(m.BatchIds, p.BatchID), append(m.CallIds, call.ID),
			append(m.Failed, failed)
		m.StepNos, m.TaskNos, m.Positions = append(m.StepNos, p.StepNo), append(m.TaskNos, p.TaskNo),
			append(m.Positions, text(p))
	}
	r.MoreBatches = append(r.MoreBatches, "{"+strings.Join(ids, ",")+"}")
}

// ranges are the positions of the records of a part as ranges of Postgres.
func ranges(p *batch.Part) (out []string) {
	from := p.From
	for _, end := range append(slices.Clip(p.LeftOut), p.To) {
		if end > from {
			out = append(out, fmt.Sprintf("[%d,%d)", p.First+int64(from), p.First+int64(end)))
		}
		from = end + 1
	}
	return out
}

func (e *exchanges) write(ctx context.Context, conn db.DBTX) error {
	if len(e.rows.Ids) == 0 {
		return nil
	}
	q := db.New()
	if err := q.ExchangeInsert(ctx, conn, e.rows); err != nil {
		return fmt.Errorf("write exchanges: %w", err)
	}
	if len(e.more.CallIds) == 0 {
		return nil
	}
	if err := q.ExchangeBatchInsert(ctx, conn, e.more); err != nil {
		return fmt.Errorf("write exchanges of batches: %w", err)
	}
	return nil
}
