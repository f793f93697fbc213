package app

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"flowlane/internal/api"
	"flowlane/internal/platform/provider"
	"flowlane/internal/signin"
)

// signIns returns what answers browsers that sign in at the identity provider, by path; nothing where none can.
func (a *App) signIns() map[string]http.Handler {
	t := a.cfg.Tokens
	if t.ClientID == "" {
		return nil
	}
	h := signin.New(signin.Config{
		Issuer: t.Issuer, ClientID: t.ClientID, ClientSecret: t.ClientSecret,
		HTTP:      &http.Client{Transport: guarded{a.keys}},
		PublicURL: a.publicURL, Log: a.cfg.Log,
		Link: func(ctx context.Context, token, nonce, remote string) (string, error) {
			link, err := a.Accounts.LinkOfIDToken(ctx, token, nonce, remote, api.NewRequestID())
			return link.Text, err //nolint:wrapcheck // a fault
		},
	})
	return map[string]http.Handler{signin.Path: http.HandlerFunc(h.Begin),
		signin.CallbackPath: http.HandlerFunc(h.Finish)}
}

// guarded sends requests of libraries by a sender: to hosts that it lets through alone, bounded in size and time,
// without following anything.
type guarded struct{ sender *provider.Sender }

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	var body [][]byte
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err //nolint:wrapcheck // a body in memory
		}
		body = [][]byte{text}
	}
	until := time.Now().Add(keySetTimeout)
	ans := g.sender.Send(r.Context(), provider.Request{
		Method: r.Method, URL: r.URL.String(), Header: r.Header, Body: body, SendBefore: until, AnswerBefore: until,
	})
	if ans.Err != nil {
		return nil, ans.Err
	}
	return &http.Response{
		Status: http.StatusText(ans.Status), StatusCode: ans.Status, Header: ans.Header, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(ans.Body)),
		ContentLength: int64(len(ans.Body)),
	}, nil
}
