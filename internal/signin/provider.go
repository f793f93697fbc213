package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// freshFor is how long what the provider said of itself is good.
const freshFor = time.Hour

// discovered is what the provider said of itself.
type discovered struct {
	mu       sync.Mutex
	endpoint oauth2.Endpoint
	until    time.Time
}

// endpoint are the provider's addresses, as its configuration has them (OpenID Connect Discovery 1.0, section 4).
func (h *Handler) endpoint(ctx context.Context) (oauth2.Endpoint, error) {
	k := &h.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Now().Before(k.until) {
		return k.endpoint, nil
	}
	text, err := h.read(ctx, strings.TrimSuffix(h.cfg.Issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return oauth2.Endpoint{}, err
	}
	var said struct {
		Issuer        string   `json:"issuer"`
		Authorization string   `json:"authorization_endpoint"`
		Token         string   `json:"token_endpoint"`
		Methods       []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return oauth2.Endpoint{}, errors.New("the configuration of the identity provider is no JSON")
	}
	if said.Issuer != h.cfg.Issuer {
		return oauth2.Endpoint{}, errors.New("the configuration of the identity provider is that of another issuer")
	}
	for _, address := range []string{said.Authorization, said.Token} {
		if !h.reachable(address) {
			return oauth2.Endpoint{}, errors.New(
				"the configuration of the identity provider names an endpoint that is no https address")
		}
	}
	k.endpoint, k.until = oauth2.Endpoint{AuthURL: said.Authorization, TokenURL: said.Token,
		AuthStyle: style(said.Methods)}, time.Now().Add(freshFor)
	return k.endpoint, nil
}

// style is how the console shows its secret; providers that do not say take it in a header.
func style(methods []string) oauth2.AuthStyle {
	if len(methods) > 0 && !slices.Contains(methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// reachable: an endpoint is as well protected as the provider's own address.
func (h *Handler) reachable(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && strings.HasPrefix(h.cfg.Issuer, "http://")
}

// exchange returns the ID token that a code stands for.
func (h *Handler) exchange(ctx context.Context, code, verifier string) (string, error) {
	client, err := h.client(ctx)
	if err != nil {
		return "", err
	}
	got, err := client.Exchange(context.WithValue(ctx, oauth2.HTTPClient, h.cfg.HTTP), code,
		oauth2.VerifierOption(verifier))
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) { // its text holds the whole answer
		return "", fmt.Errorf("the identity provider refused a code with status %d: %.100q",
			refused.Response.StatusCode, refused.ErrorCode)
	}
	if err != nil {
		return "", fmt.Errorf("exchange a code: %w", err)
	}
	token, _ := got.Extra("id_token").(string)
	if token == "" {
		return "", errors.New("the identity provider gave no ID token: it must know the scope openid")
	}
	return token, nil
}

// read gets an address of the provider.
func (h *Handler) read(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", address, err)
	}
	res, err := h.cfg.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of the identity provider: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s: the answer has status %d, not 200", address, res.StatusCode)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", address, err)
	}
	return text, nil
}
