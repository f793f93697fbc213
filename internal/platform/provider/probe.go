package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// The classes of a failed probe, as a connection test shows them.
const (
	AuthFailed       = "AUTH_FAILED"
	Network          = "NETWORK"
	Timeout          = "TIMEOUT"
	RateLimitedClass = "RATE_LIMITED"
	PermissionDenied = "PERMISSION_DENIED"
	InvalidShape     = "INVALID_CREDENTIALS_SHAPE"
	UnknownClass     = "UNKNOWN"
)

// probeTimeout bounds a probe whose context has no deadline.
const probeTimeout = 15 * time.Second

// Account is what a platform says about the owner of a credential.
type Account struct {
	Number string
	// Name and TimeZone are empty where the platform does not say; TimeZone is an IANA name.
	Name, TimeZone string
}

// Counter is one of the provider's own counters.
type Counter struct {
	Bucket        string
	WindowSeconds int
	// Limit is 0 where the provider does not say.
	Limit, Value int
}

// ProbeError is a probe that failed. Class is one of the classes above, Details may be shown; neither holds a secret.
type ProbeError struct {
	Class   string
	Details string
	said    string
	// kind is what the answer proves of the question: NotArrived, Refused, or Unknown.
	kind  Kind
	cause error
	// lost: the issuer of tokens takes the refresh token no longer.
	lost bool
}

func (e *ProbeError) Error() string { return e.Class + ": " + e.Details }
func (e *ProbeError) Unwrap() error { return e.cause }

// Explain returns the class of a probe's error and the text for the caller, both empty for none. Texts of errors that
// are no *ProbeError can hold addresses with keys in them, so they are not shown.
func Explain(err error) (class, details string) {
	if err == nil {
		return "", ""
	}
	var known *ProbeError
	if errors.As(err, &known) {
		return known.Class, known.Details
	}
	return UnknownClass, "The attempt failed for an unknown reason; try again later."
}

// Probed is what a probe that ended with this error proves, as Read says of calls.
func Probed(err error) Reading {
	var known *ProbeError
	switch {
	case err == nil:
		return Reading{Kind: Success}
	case errors.As(err, &known) && known.kind == NotArrived:
		return Reading{Kind: NotArrived, Reason: ReasonUnreachable}
	case errors.As(err, &known) && known.kind == Refused:
		return Reading{Kind: Refused, Reason: ReasonRefused}
	}
	return Reading{Kind: Unknown}
}

func probeError(class string, cause error, format string, args ...any) *ProbeError {
	return &ProbeError{Class: class, Details: fmt.Sprintf(format, args...), cause: cause}
}

// Whoami asks whose credential it is. Errors are *ProbeError.
func (s *Sender) Whoami(ctx context.Context, p *catalog.Platform, svc *catalog.Service,
	secret Secret) (Account, error) {
	if p.Account == nil {
		return Account{}, s.check(ctx, p, svc, secret)
	}
	w := &p.Account.Whoami
	doc, err := s.probe(ctx, svc, &w.Question, secret)
	if err != nil {
		return Account{}, err
	}
	a := Account{Number: named(doc, w.AccountNumber), Name: named(doc, w.AccountName), TimeZone: named(doc, w.TimeZone)}
	if w.AccountLabel != "" {
		if a.Number, err = secret.label(svc, w.AccountLabel); err != nil {
			return Account{}, probeError(InvalidShape, err, "The secret does not say the %s of the account.",
				w.AccountLabel)
		}
	}
	if a.Number == "" {
		return Account{}, probeError(UnknownClass, nil, "The platform's answer names no account.")
	}
	if _, err := time.LoadLocation(a.TimeZone); err != nil || a.TimeZone == "Local" {
		a.TimeZone = ""
	}
	if a.TimeZone == "" {
		a.TimeZone = zoneOf(p.Account, svc, secret)
	}
	return a, nil
}

// zoneOf is the time zone of the data centre that an account is called at; empty where the catalog does not know it.
func zoneOf(a *catalog.Account, svc *catalog.Service, secret Secret) string {
	base, err := secret.base(svc)
	if err != nil {
		return ""
	}
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return a.TimeZones[u.Hostname()]
}

// ErrNothingAsked: there was nobody to ask about a credential.
var ErrNothingAsked = errors.New("nothing was asked")

// check tries a secret of a platform that cannot tell accounts: by the service's own check, else by getting its token.
func (s *Sender) check(ctx context.Context, p *catalog.Platform, svc *catalog.Service, secret Secret) error {
	if svc.Kind == "mcp" {
		return s.trySession(ctx, svc, secret)
	}
	if svc.CheckedBy() != nil {
		_, err := s.call(ctx, svc.CheckedBy(), secret)
		return err
	}
	if svc.Check != "" {
		return s.send(ctx, svc, svc.Check, secret, &Answer{})
	}
	if in := secret.open(); in.issued {
		err := in.sign(ctx, s, &Request{Header: http.Header{}, newToken: true})
		if err != nil && errors.Is(err, ctx.Err()) {
			return probeError(Timeout, err, "The token endpoint did not answer in time.")
		}
		return err
	}
	return probeError(UnknownClass, ErrNothingAsked,
		"Platform %s has no way to test a credential; it shows with the first call.", p.ID)
}

// Counters asks for the provider's own counters of the windows that budgets have, and when they were read; asOf is zero
// where it does not say. It returns nothing for a platform without counters. Errors are *ProbeError.
func (s *Sender) Counters(ctx context.Context, p *catalog.Platform, svc *catalog.Service,
	secret Secret) (counters []Counter, asOf time.Time, err error) {
	if p.Account == nil || p.Account.Counters == nil {
		return nil, time.Time{}, nil
	}
	spec := p.Account.Counters
	doc, err := s.probe(ctx, svc, &spec.Question, secret)
	if err != nil {
		return nil, time.Time{}, err
	}
	return readCounters(spec, doc)
}

// probe asks a question about an account and returns the parsed answer.
func (s *Sender) probe(ctx context.Context, svc *catalog.Service, q *catalog.Question,
	secret Secret) (gjson.Result, error) {
	if q.By() != nil {
		return s.call(ctx, q.By(), secret)
	}
	var ans Answer
	if err := s.send(ctx, svc, q.Path, secret, &ans); err != nil {
		return gjson.Result{}, err
	}
	if !validJSON(ans.Body) {
		return gjson.Result{}, probeError(UnknownClass, nil, "The platform's answer is no JSON.")
	}
	return parse(ans.Body), nil
}

// send sends one GET, which must be answered 200.
func (s *Sender) send(ctx context.Context, svc *catalog.Service, path string, secret Secret, ans *Answer) error {
	deadline := s.probeUntil(ctx)
	base, err := secret.base(svc)
	r := Request{
		Method: http.MethodGet, URL: base + path, PlatformID: svc.PlatformID, SendBefore: deadline,
		AnswerBefore: deadline, newToken: true,
	}
	if err == nil {
		r.Header, err = headersOf(svc, secret)
	}
	if err == nil {
		err = secret.apply(svc, &r)
	}
	if err != nil {
		return lacking(err)
	}
	*ans = s.Send(ctx, r)
	err = classify(ans)
	var known *ProbeError
	switch {
	case !errors.As(err, &known):
	case ans.Sent == NotSent:
		known.kind = NotArrived
	case ans.Sent == Answered && ans.Status >= 400 && ans.Status < 500:
		known.kind = Refused
		known.said = excerpt(ans)
	}
	return err
}

// CredentialUse tells what an answer to a call says of the credential that it carried: the class of the failure, empty
// where the platform took the credential, even if it refused the call for another reason. used is false where the
// credential did not leave this process for reasons of ours.
func CredentialUse(ans *Answer) (class string, used bool) {
	if ans.Sent != Answered {
		var unsigned *ProbeError
		if errors.As(ans.Err, &unsigned) {
			return unsigned.Class, true
		}
		if ans.Sent == NotSent && (isOurs(ans.Err)) {
			return "", false
		}
		if reasonOfSilence(ans.Err) == ReasonTimeout {
			return Timeout, true
		}
		return Network, true
	}
	switch {
	case ans.Status == http.StatusUnauthorized:
		return AuthFailed, true
	case ans.Status == http.StatusForbidden:
		return PermissionDenied, true
	case ans.Status == http.StatusTooManyRequests:
		return RateLimitedClass, true
	case ans.Status >= 500, ans.Status >= 300 && ans.Status < 400:
		return UnknownClass, true
	case ans.Err != nil:
		return Network, true
	}
	return "", true
}

// isOurs reports whether a request was not sent for a reason of ours.
func isOurs(err error) bool {
	return errors.Is(err, ErrTooLate) || errors.Is(err, ErrWithheld) || errors.Is(err, ErrAddressRefused) ||
		errors.Is(err, ErrBadRequest)
}

// classify returns the error that an answer to a probe means; nil for a readable 200.
func classify(ans *Answer) error {
	var unsigned *ProbeError
	if errors.As(ans.Err, &unsigned) {
		return unsigned
	}
	if ans.Sent == NotSent && errors.Is(ans.Err, ErrAddressRefused) {
		return probeError(Network, ans.Err, "The platform's address is not allowed: %s.", causeOf(ans.Err))
	}
	class, used := CredentialUse(ans)
	switch {
	case !used && errors.Is(ans.Err, ErrTooLate), class == Timeout:
		return probeError(Timeout, ans.Err, "The platform did not answer in time.")
	case ans.Sent != Answered:
		return probeError(Network, ans.Err, "The platform could not be reached.")
	case class == AuthFailed:
		return probeError(class, nil, "The platform refused the credential (status 401).")
	case class == PermissionDenied:
		return probeError(class, nil, "The platform knows the credential but denies access (status 403).")
	case class == RateLimitedClass:
		return probeError(class, nil, "The platform asks to come back later (status 429).")
	case ans.Status != http.StatusOK:
		return probeError(UnknownClass, nil, "The platform answered with status %d.", ans.Status)
	case ans.Err != nil:
		return probeError(Network, ans.Err, "The platform's answer broke off or is too large.")
	}
	return nil
}
