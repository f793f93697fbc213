package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/account"
	"flowlane/internal/api"
	"flowlane/internal/catalog"
	"flowlane/internal/recordset"
)

// service is the API on a loopback port, and a client with an admin key.
type service struct {
	url, key string
	http     *http.Client
}

// serve starts the API on the bench's database.
func serve(ctx context.Context, e *env) (*service, error) {
	accounts, err := account.New(account.Config{
		Pool: e.pool, HashKeys: [][]byte{bytes.Repeat([]byte("b"), 32)}, Random: rand.Reader, Now: time.Now, Log: slog.Default(),
	})
	if err != nil {
		return nil, err
	}
	platforms, err := catalog.Load(catalog.Options{})
	if err != nil {
		return nil, err
	}
	handler, err := api.New(api.Deps{
		Pool: e.pool, Accounts: accounts, Catalog: platforms, RecordSets: recordset.New(e.pool, nowhere{}), Now: time.Now, Log: slog.Default(),
	})
	if err != nil {
		return nil, err
	}
	org, err := account.CreateOrg(ctx, e.pool, "bench")
	if err != nil {
		return nil, err
	}
	key, _, err := accounts.CreateKey(ctx, e.pool, account.NewKey{OrgID: org.ID, Name: "bench"})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	e.closers = append(e.closers, func() { _ = server.Close() })
	return &service{"http://" + listener.Addr().String(), key, &http.Client{}}, nil
}

// nowhere plans nothing.
type nowhere struct{}

func (nowhere) Wake(context.Context, pgx.Tx, string, string, time.Time) error { return nil }

// call sends a request under /v1 and decodes the answer into out, unless that is nil.
func (s *service) call(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", s.key)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s answered %d: %s", method, path, res.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
