package provider

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// probeUntil is when a question must be answered.
func (s *Sender) probeUntil(ctx context.Context) time.Time {
	if deadline, ok := ctx.Deadline(); ok {
		return deadline
	}
	return s.now().Add(probeTimeout)
}

func lacking(err error) *ProbeError {
	e := probeError(InvalidShape, err, "The credential lacks what this platform needs.")
	e.kind = NotArrived
	return e
}

// call asks by an action, and returns what it answers. Errors are *ProbeError.
func (s *Sender) call(ctx context.Context, act *catalog.Action, secret Secret) (gjson.Result, error) {
	r, err := Prepare(act.Service(), act, json.RawMessage("{}"), nil, secret, "")
	if err != nil {
		return gjson.Result{}, lacking(err)
	}
	r.SendBefore, r.newToken = s.probeUntil(ctx), true
	r.AnswerBefore = r.SendBefore
	ans := s.Send(ctx, r)
	return readQuestion(act, &ans)
}

// readQuestion reads the answer to a question that an action asked. Errors are *ProbeError.
func readQuestion(act *catalog.Action, ans *Answer) (gjson.Result, error) {
	r := Read(act, *ans, 0)
	if r.Kind == Success {
		if value := ans.Value(act); value != nil {
			return parse(value), nil
		}
		return gjson.Result{}, probeError(UnknownClass, nil, "The platform's answer holds nothing.")
	}
	e := refusal(ans, &r)
	switch e.said = excerpt(ans); {
	case ans.Sent == NotSent:
		e.kind = NotArrived
	case r.Kind == Refused, r.Kind == RetryLater:
		e.kind = Refused
	}
	return gjson.Result{}, e
}

// refusal says what an answer that is no success means for the credential: by its status, else by what the action reads
// in it.
func refusal(ans *Answer, r *Reading) *ProbeError {
	class, _ := CredentialUse(ans)
	known := class == AuthFailed || class == PermissionDenied || class == RateLimitedClass
	e, ok := classify(ans).(*ProbeError) //nolint:errorlint // it wraps nothing
	if ok && (known || ans.Sent != Answered) {
		return e
	}
	why := r.Code
	if r.Message != "" && why != "" {
		why += ": "
	}
	why += r.Message
	switch {
	case why == "":
		return probeError(UnknownClass, nil, "The platform answered with status %d.", ans.Status)
	case r.Kind == Refused:
		return probeError(PermissionDenied, nil, "The platform refused (%s).", why)
	case r.Kind == RetryLater:
		return probeError(RateLimitedClass, nil, "The platform asks to come back later (%s).", why)
	}
	return probeError(UnknownClass, nil, "The platform failed (%s, status %d).", why, ans.Status)
}

// ReadCounters reads the answer to the action that asks for the counters of a platform, as Sender.Counters does.
func ReadCounters(p *catalog.Platform, ans *Answer) (counters []Counter, asOf time.Time, err error) {
	spec := p.Account.Counters
	doc, err := readQuestion(spec.By(), ans)
	if err != nil {
		return nil, time.Time{}, err
	}
	return readCounters(spec, doc)
}

func readCounters(spec *catalog.Counters, doc gjson.Result) (counters []Counter, asOf time.Time, err error) {
	unreadable := probeError(UnknownClass, nil, "The platform's counters are not as the catalog describes them.")
	if spec.AsOf != "" {
		if asOf, err = time.Parse(time.RFC3339, doc.Get(spec.AsOf).String()); err != nil {
			return nil, time.Time{}, unreadable
		}
	}
	items := doc
	if spec.Items != "" {
		items = doc.Get(spec.Items)
	}
	if !items.IsArray() && !items.IsObject() {
		return nil, time.Time{}, unreadable
	}
	r := counterReader{spec: spec}
	if spec.Bucket != "" && items.IsObject() { // the one element of an XML document
		r.element(gjson.Result{}, items)
	} else {
		items.ForEach(func(name, item gjson.Result) bool {
			r.element(name, item)
			return true
		})
	}
	if r.odd {
		return nil, time.Time{}, unreadable
	}
	return r.out, asOf, nil
}

// counterReader goes through counters.
type counterReader struct {
	spec *catalog.Counters
	out  []Counter
	// odd: one of them is not as the catalog describes it.
	odd bool
}

func (r *counterReader) element(name, item gjson.Result) {
	if r.spec.Within == "" {
		r.counter(name, item, gjson.Result{})
		return
	}
	inner := item.Get(r.spec.Within)
	if inner.IsObject() {
		r.counter(gjson.Result{}, inner, item)
		return
	}
	inner.ForEach(func(_, one gjson.Result) bool {
		r.counter(gjson.Result{}, one, item)
		return true
	})
}

// longestWindow is the length in seconds of the longest window that a budget has.
const longestWindow = 86400

// maxCount is the most that a counter or limit is taken for: what is stored has 32 bits.
const maxCount = math.MaxInt32

// counter reads one counter; around is the element that it lies in.
func (r *counterReader) counter(name, item, around gjson.Result) {
	spec := r.spec
	field := func(path string) gjson.Result {
		if v := item.Get(path); v.Exists() || !around.Exists() {
			return v
		}
		return around.Get(path)
	}
	c := Counter{Bucket: name.String(), WindowSeconds: spec.Window}
	if spec.Bucket != "" {
		c.Bucket = scalarText(field(spec.Bucket))
	}
	if bucket, known := spec.Names[c.Bucket]; known {
		c.Bucket = bucket
	} else if spec.Names != nil && c.Bucket != "" {
		return // of no budget
	}
	ok := c.Bucket != ""
	if spec.WindowSeconds != "" {
		c.WindowSeconds, ok = number(field(spec.WindowSeconds), ok)
	}
	limit := 0
	if spec.Limit != "" {
		limit, _ = number(field(spec.Limit), true)
		c.Limit = min(max(limit, 0), maxCount)
	}
	if spec.Remaining == "" {
		c.Value, ok = number(field(spec.Value), ok)
		ok = ok && c.Value >= 0
	} else {
		left, is := number(field(spec.Remaining), ok)
		c.Value, ok = max(limit-left, 0), is && limit > 0
	}
	c.Value = min(c.Value, maxCount)
	r.odd = r.odd || !ok
	if c.WindowSeconds >= 1 && c.WindowSeconds <= longestWindow { // of others, such as a month, no budget knows
		r.out = append(r.out, c)
	}
}

// number is a whole number, be it written as text, as in XML; false where it is none, or ok was false before.
func number(v gjson.Result, ok bool) (int, bool) {
	if v.Type == gjson.String {
		n, err := strconv.Atoi(v.Str)
		return n, err == nil && ok
	}
	n, whole := wholeNumber(v)
	return n, whole && ok
}
