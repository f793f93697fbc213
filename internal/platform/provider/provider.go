// Package provider makes outbound calls: it renders a call from the catalog's templates, adds the credential, sends it
// at most once before a deadline, and reads the answer as the catalog says.
//
// It promises that a call which it reports as not sent never reached the provider, that no request is ever sent a
// second time by itself, that no byte is handed to the network after the deadline, and that secrets stand only in the
// outgoing request, never in an error. What it cannot know it calls unknown.
//
// It must not know the database, batches, budgets or any particular platform.
package provider

import (
	"context"
	"net/http"
	"time"

	"flowlane/internal/command"
	"flowlane/internal/memory"
)

// Request is one call, ready to be sent.
type Request struct {
	Method string
	URL    string
	Header http.Header
	// PlatformID is the platform whose service is called; empty for a request that is no call of one.
	PlatformID string
	// Body is sent part by part, without being joined; none for an empty body.
	Body [][]byte
	// BodyForm is the form in which the body is written, one of catalog.BodyForms; empty for a request that is no call.
	BodyForm string
	// SendBefore: no byte is written at or after this time. It should carry a monotonic reading. Zero for no limit.
	SendBefore time.Time
	// AnswerBefore: the answer must have been read by then. Zero for no limit.
	AnswerBefore time.Time
	// FreshUntil: until then it needs no confirmation that the request may go out. From then on Confirm is called
	// before the first byte, and says until when that is good; its error means that nothing may be sent. What has begun
	// to go out goes on. Zero for a request that needs none.
	FreshUntil time.Time
	Confirm    func(ctx context.Context) (until time.Time, err error)
	// Opened is told the reference of a job before that is committed; its error means that it must not be. Nil for
	// other requests.
	Opened func(ctx context.Context, reference string) error
	// Memory is what the call holds of the process's budget, and grows with its answer; whoever made it releases it
	// when the answer is done with. Where there is none, an answer counts while it is read.
	Memory *memory.Grant

	// sign makes the request ready just before it is sent; nil where it is. token is what it was given, newToken asks
	// for one that was never used.
	sign     signer
	token    *token
	newToken bool
	// tls is how its connection is made; nil for any that there is.
	tls *clientTLS
	// aws is what it is signed for, where the call says so.
	aws awsScope
	// Owner names whose session with a server it may share with other requests; empty for a session of its own.
	Owner string
	// tool is what a call of a tool has beside other requests; nil for those.
	tool *toolCall
	// soap: its answer is an envelope. security is how user and password go into the second part of its body; empty for
	// not at all.
	soap     bool
	security string
	// command is what is run instead; nil for a request over the network.
	command *commandLine
	// masks are what its answer must not show.
	masks []*mask
	// Repeats: it has the idempotency key of an earlier attempt, which may still be under way there: a conflict (409)
	// then says nothing of the outcome.
	Repeats bool
	// outcomes are what statuses prove of which the call itself says so.
	outcomes map[int]Kind
	// rows is the array of rows of a bulk call.
	rows []byte
	// job is what a call has that goes as several requests; nil for others.
	job *job
}

// Size is the length of the body in bytes.
func (r *Request) Size() int64 {
	var n int64
	for _, part := range r.Body {
		n += int64(len(part))
	}
	return n
}

// Sent says what is known about the arrival of a request.
type Sent int

const (
	// NotSent: not one byte of the request left this process.
	NotSent Sent = iota
	// Maybe: some of it was written, and no status came back.
	Maybe
	// Answered: a status came back; the body may still be unreadable.
	Answered
)

func (s Sent) String() string {
	switch s {
	case NotSent:
		return "not sent"
	case Maybe:
		return "maybe sent"
	default:
		return "answered"
	}
}

// Answer is what came of one Request.
type Answer struct {
	Sent   Sent
	Status int
	Header http.Header
	Body   []byte
	// Err says why there is no answer or why its body is unreadable; nil after a complete answer. It never holds a
	// secret.
	Err error
	// Stale: the platform refused a token that it had taken before. The next call has a new one.
	Stale bool
	// NoSession: the server did not know the session of the call, and did nothing. Proven: it had known it before.
	NoSession, Proven     bool
	StartedAt, FinishedAt time.Time
	// FailedAt is the stage at which the round trip broke off, one of the Stage constants; empty where it did not, or
	// where nothing was tried.
	FailedAt string

	// masks are those of the request.
	masks []*mask
	// repeats, outcomes and rows are those of the request.
	repeats  bool
	outcomes map[int]Kind
	// exit is how a command ended.
	exit *command.Result
	// toolCall is the id of a call of a tool, which its answer repeats.
	toolCall string
	rows     []byte
	// step is the request of a job that it is about; nil for other calls.
	step *jobStep
	// soap is that of the request, form that of the answers of its action.
	soap bool
	form string
	// value is the body as JSON and fault that of SOAP, once they were asked for.
	value, fault []byte
	valued       bool
}
