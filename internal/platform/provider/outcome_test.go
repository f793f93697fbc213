package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func answered(status int, body string, headers ...string) Answer {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return Answer{Sent: Answered, Status: status, Body: []byte(body), Header: h, FinishedAt: time.Date(2026, 1, 2, 3, 4,
		5, 0, time.UTC)}
}

func broken(ans Answer) Answer {
	ans.Err = io.ErrUnexpectedEOF
	return ans
}

// brief is a reading in one line.
func brief(r Reading) string {
	out := string(r.Kind)
	add := func(name string, value any) {
		if text := fmt.Sprint(value); text != "" && text != "0" && text != "0s" && text != "[]" {
			out += " " + name + "=" + text
		}
	}
	add("reason", r.Reason)
	if r.Reason == ReasonRedirect {
		add("cause", r.Cause)
	}
	add("ref", r.Reference)
	add("out", string(r.Output))
	var rows []string
	for _, o := range r.Rows {
		text := fmt.Sprintf("{%d %s %s}", o.Row, o.Code, o.Message)
		if o.Kind != RowRejected {
			text = fmt.Sprintf("{%d %s %s%s%s}", o.Row, o.Kind, o.Code, o.Message, o.Output)
		}
		rows = append(rows, text)
	}
	add("rows", rows)
	add("code", r.Code)
	add("msg", r.Message)
	add("after", r.RetryAfter)
	add("bucket", r.Bucket)
	add("window", r.WindowSeconds)
	return out
}

func TestRead(t *testing.T) {
	t.Parallel()
	const (
		up, async, dial = "dialer__api__upload", "dialer__api__upload_async", "dialer__api__dial"
		send, peek      = "parcels__api__send", "parcels__api__peek"
		ok              = `{"import_id":"i1","received":3,"accepted":1,"rejected":[{"row":2,"code":"c","reason":"r"},{"row":0,"code":"d","reason":"s"}]}`
		unreadable      = "unknown reason=unreadable_answer"
	)
	c := testCatalog(t)
	for name, tc := range map[string]struct {
		action string
		ans    Answer
		want   string
	}{
		"rows":        {up, answered(200, ok), `success ref=i1 out={"import_id":"i1"} rows=[{0 d s} {2 c r}]`},
		"no rejected": {up, answered(200, `{"import_id":7}`), `success ref=7 out={"import_id":7}`},
		"row twice": {up, answered(200,
			`{"import_id":"i","rejected":[{"row":1,"code":"a"},{"row":1,"code":"b"}]}`),
			`success ref=i out={"import_id":"i"} rows=[{1 a }]`},
		"row too high": {up, answered(200, `{"import_id":"i","rejected":[{"row":3}]}`), unreadable},
		"row negative": {up, answered(200, `{"import_id":"i","rejected":[{"row":-1}]}`), unreadable},
		"row fraction": {up, answered(200, `{"import_id":"i","rejected":[{"row":0.5}]}`), unreadable},
		"row text": {up, answered(200, `{"import_id":"i","rejected":[{"row":"1"}]}`),
			`success ref=i out={"import_id":"i"} rows=[{1  }]`},
		"row no number":    {up, answered(200, `{"import_id":"i","rejected":[{"row":"1.0"}]}`), unreadable},
		"row missing":      {up, answered(200, `{"import_id":"i","rejected":[{"code":"a"}]}`), unreadable},
		"row huge":         {up, answered(200, `{"import_id":"i","rejected":[{"row":1e300}]}`), unreadable},
		"rows no list":     {up, answered(200, `{"import_id":"i","rejected":{}}`), unreadable},
		"no reference":     {up, answered(200, `{}`), unreadable},
		"reference object": {up, answered(200, `{"import_id":{}}`), unreadable},
		"garbage":          {up, answered(200, `<html>`), unreadable},
		"empty":            {up, answered(200, ``), unreadable},
		"truncated":        {up, answered(200, ok[:40]), unreadable},
		"cut":              {up, broken(answered(200, ok)), unreadable},
		"pending":          {async, answered(202, `{"import_id":"i2"}`), `pending ref=i2 out={"import_id":"i2"}`},
		"pending garbage":  {async, answered(202, `ok`), unreadable},
		"async 200":        {async, answered(200, ok), "unknown reason=unexpected_status msg=" + ok},
		"refused": {up, answered(404, `{"fault":"unknown_list","message":"no such list"}`),
			"refused reason=refused code=unknown_list msg=no such list"},
		"refused html": {up, answered(404, `<html>`), "refused reason=refused"},
		"refused cut":  {up, broken(answered(400, `{"fau`)), "refused reason=refused"},
		"busy": {up, answered(409, `{"fault":"concurrent_modification"}`),
			"retry_later reason=temporarily_denied code=concurrent_modification after=1s"},
		"limit": {up, answered(429,
			`{"fault":"l","operation_type":"upload","window_seconds":3600,"limit":1}`),
			"retry_later reason=rate_limited code=l bucket=upload window=3600"},
		"limit with header": {up, answered(429, `{"operation_type":"upload","window_seconds":60}`, "Retry-After", "9"),
			`retry_later reason=rate_limited msg={"operation_type":"upload","window_seconds":60} after=9s bucket=upload window=60`},
		"limit bare": {up, answered(429, `<html>`), "retry_later reason=rate_limited after=1m0s"},
		"limit cut":  {up, broken(answered(429, `{"oper`)), "retry_later reason=rate_limited after=1m0s"},
		"limit date": {up, answered(429, ``, "Retry-After", "Fri, 02 Jan 2026 03:04:35 GMT"),
			"retry_later reason=rate_limited after=30s"},
		"limit dates": {up, answered(429, ``, "Retry-After", "Fri, 02 Jan 2026 03:04:35 GMT", "Date",
			"Fri, 02 Jan 2026 03:04:30 GMT"), "retry_later reason=rate_limited after=5s"},
		"limit past date": {up, answered(429, ``, "Retry-After", "Fri, 02 Jan 2015 03:04:35 GMT"),
			"retry_later reason=rate_limited"},
		"limit huge": {up, answered(429, ``, "Retry-After", "999999999999"),
			"retry_later reason=rate_limited after=24h0m0s"},
		"limit nonsense": {up, answered(429, ``, "Retry-After", "soon"),
			"retry_later reason=rate_limited after=1m0s"},
		"reset": {up, answered(429, ``, "X-RateLimit-Reset", "7", "X-RateLimit-Remaining", "0"),
			"retry_later reason=rate_limited after=7s"},
		"reset at": {up, answered(429, ``, "X-RateLimit-Reset", "1767323075"),
			"retry_later reason=rate_limited after=30s"},
		"reset at millis": {up, answered(429, ``, "RateLimit-Reset", "1767323075000"),
			"retry_later reason=rate_limited after=30s"},
		"reset named": {up, answered(429, ``, "RateLimit-Reset", "total=700;remaining=0;resets=12"),
			"retry_later reason=rate_limited after=12s"},
		"reset structured": {up, answered(429, ``, "RateLimit", `"day";r=5;t=900, "burst";r=0;t=3`),
			"retry_later reason=rate_limited after=3s"},
		"reset of others": {up, answered(429, ``, "X-RateLimit-Reset", "900", "X-RateLimit-Remaining", "5"),
			"retry_later reason=rate_limited after=1m0s"},
		"reset and wait": {up, answered(429, ``, "X-RateLimit-Reset", "900", "Retry-After", "2"),
			"retry_later reason=rate_limited after=2s"},
		"reset nonsense": {up, answered(429, ``, "X-RateLimit-Reset", "NaN"),
			"retry_later reason=rate_limited after=1m0s"},
		"limit undescribed": {send, answered(429, ``), "retry_later reason=rate_limited after=1m0s"},
		"retry status": {send, answered(503, `{"error":{"code":"busy","text":"later"}}`),
			"retry_later reason=temporarily_denied code=busy msg=later after=7s"},
		"server error": {up, answered(502, `<html>bad gateway`), "unknown reason=server_error"},
		"server error named": {up, answered(500, `{"fault":"oops","message":"m"}`),
			"unknown reason=server_error code=oops msg=m"},
		"redirect":      {up, answered(307, ``), "unknown reason=redirected"},
		"unexpected":    {up, answered(418, ``), "unknown reason=unexpected_status"},
		"other success": {up, answered(201, ok), "unknown reason=unexpected_status msg=" + ok},
		"call id":       {dial, answered(201, `{"call_id":"c9"}`), `success ref=c9 out={"call_id":"c9"}`},
		"dotted output": {send, answered(200, `{"parcel":{"id":12345678901234567890}}`),
			`success out={"id":12345678901234567890}`},
		"empty output": {send, answered(204, ``), unreadable},
		"whole body":   {peek, answered(200, ` {"a":1} `), `success out={"a":1}`},
		"no content":   {peek, answered(204, ``), `success`},
		"NUL":          {peek, answered(200, `{"a":"x\u0000y\\u0000"}`), `success out={"a":"x\ufffdy\\u0000"}`},
		"bad UTF-8":    {peek, answered(200, "{\"a\":\"\xff\"}"), "success out={\"a\":\"\uFFFD\"}"},
		"not sent":     {up, Answer{Err: errors.New("refused")}, "not_arrived reason=unreachable"},
		"not tried":    {up, Answer{Err: ErrNotTried}, "not_arrived reason=too_late"},
		"withheld": {up, Answer{Err: fmt.Errorf("%w: %w", ErrWithheld, context.DeadlineExceeded)},
			"not_arrived reason=withheld"},
		"too late to write": {up, Answer{Err: ErrTooLate}, "not_arrived reason=timeout"},
		"connect timeout": {up, Answer{Err: &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}},
			"not_arrived reason=timeout"},
		"call timeout": {up, Answer{Err: fmt.Errorf("dial: %w", context.DeadlineExceeded)},
			"not_arrived reason=timeout"},
		"address": {up, Answer{Err: fmt.Errorf("dial: %w", ErrAddressRefused)},
			"refused reason=address_refused"},
		"bad request":       {up, Answer{Err: ErrBadRequest}, "refused reason=bad_request"},
		"cut before status": {up, Answer{Sent: Maybe, Err: io.EOF}, "unknown reason=no_answer"},
		"hang":              {up, Answer{Sent: Maybe, Err: context.DeadlineExceeded}, "unknown reason=timeout"},
		"late in the body":  {up, Answer{Sent: Maybe, Err: ErrTooLate}, "unknown reason=timeout"},
	} {
		_, act := action(t, c, tc.action)
		if got := brief(Read(act, tc.ans, 3)); got != tc.want {
			t.Errorf("%s: reading is %s; want %s", name, got, tc.want)
		}
	}
}

func TestRead_Envelope(t *testing.T) {
	t.Parallel()
	_, act := action(t, testCatalog(t), "core__http__request")
	big := strings.Repeat("é", maxOutput)
	for name, tc := range map[string]struct {
		ans  Answer
		want string
	}{
		"json": {answered(200, `{"a":1.0}`, "X-B", "c", "X-B", "d"),
			`success out={"status":200,"headers":{"x-b":"c, d"},"body":{"a":1.0}}`},
		"text": {answered(201, "hi \"you\"\x00"),
			`success out={"status":201,"headers":{},"body":"hi \"you\"` + "\uFFFD" + `"}`},
		"bytes": {answered(200, "\x00\xff\x01"),
			`success out={"status":200,"headers":{},"body":"AP8B","base64":true}`},
		"old text": {answered(200, "caf\xe9", "Content-Type", "text/plain"),
			`success out={"status":200,"headers":{"content-type":"text/plain"},"body":"caf` + "\uFFFD" + `"}`},
		"moved": {answered(302, "", "Location", "https://u:p@b.example/new?token=s"),
			"unknown reason=redirected cause=to https://b.example/new"},
		"moved for good": {answered(308, "", "Location", "/new"), "refused reason=redirected cause=to /new"},
		"empty":          {answered(204, ""), `success out={"status":204,"headers":{},"body":null}`},
		"cut":            {broken(answered(200, "hi")), "unknown reason=unreadable_answer"},
		"not found":      {answered(404, "hi"), "refused reason=refused"},
	} {
		if got := brief(Read(act, tc.ans, 0)); got != tc.want {
			t.Errorf("%s: reading is %s; want %s", name, got, tc.want)
		}
	}
	for _, body := range []string{big, `"` + big + `"`, strings.Repeat("\xff", maxOutput)} {
		r := Read(act, answered(200, body), 0)
		if len(r.Output) > maxOutput || !strings.HasSuffix(string(r.Output), `"truncated":true}`) {
			t.Errorf("a large body gives %d bytes", len(r.Output))
		}
	}
	_, peek := action(t, testCatalog(t), "parcels__api__peek")
	if r := Read(peek, answered(200, `"`+big+`"`), 0); r.Kind != Success || !strings.HasPrefix(string(r.Output),
		`{"truncated":true`) {
		t.Errorf("a large body gives %.80s", r.Output)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	if got := clean(" a\x00b\r\nc\xff ", 500); got != "a b  c\uFFFD" {
		t.Errorf("got %q", got)
	}
	if got := clean(strings.Repeat("é", 600), 500); len([]rune(got)) != 500 || !strings.HasSuffix(got, "…") {
		t.Errorf("got %d characters", len([]rune(got)))
	}
}

// TestRead_Outcomes: what a call says of statuses itself comes before the catalog, and a conflict with a key of its own
// before both proves nothing.
func TestRead_Outcomes(t *testing.T) {
	t.Parallel()
	_, act := action(t, testCatalog(t), "core__http__request")
	says := map[int]Kind{409: Success, 200: Refused, 500: NotArrived, 404: Unknown, 429: NotArrived}
	for name, tc := range map[string]struct {
		status   int
		outcomes map[int]Kind
		repeats  bool
		want     string
	}{
		"success":         {409, says, false, `success out={"status":409,"headers":{},"body":{"message":"m"}}`},
		"refused":         {200, says, false, "refused reason=refused msg=m"},
		"retry":           {500, says, false, "not_arrived reason=temporarily_denied msg=m after=7s"},
		"unclear":         {404, says, false, "unknown reason=unexpected_status msg=m"},
		"rate limit":      {429, says, false, "retry_later reason=rate_limited msg=m after=7s"},
		"not said":        {410, says, false, "refused reason=refused msg=m"},
		"conflict":        {409, nil, false, "refused reason=refused msg=m"},
		"conflict, again": {409, nil, true, "unknown reason=unexpected_status msg=m"},
		"said, again":     {409, map[int]Kind{409: Refused}, true, "refused reason=refused msg=m"},
	} {
		ans := answered(tc.status, `{"message":"m"}`, "Retry-After", "7")
		ans.outcomes, ans.repeats = tc.outcomes, tc.repeats
		got := strings.Replace(brief(Read(act, ans, 0)), `"headers":{"retry-after":"7"}`, `"headers":{}`, 1)
		if got != tc.want {
			t.Errorf("%s: reading is %s; want %s", name, got, tc.want)
		}
	}
}
