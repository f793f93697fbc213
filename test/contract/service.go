package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"flowlane/internal/orgquota"
	"flowlane/internal/pg/devpg"
)

const (
	prefix = "/v1"
	// requestLimit is one that no run reaches.
	requestLimit = "1000000000"
	waitLimit    = 60 * time.Second
)

// service is the running service, with what it stands on, and an organization that uses it.
type service struct {
	// url is the root, without /v1; key belongs to an admin.
	url, key string
	// sim is the address of the simulated platform, silent one that takes every request and leaves open what became of
	// it.
	sim, silent string

	program string
	env     []string
	log     *os.File
	closers []func()
	ended   chan error
}

// start brings up Postgres, the simulated platform and the service, and makes an organization.
func start(ctx context.Context, program, dir string) (_ *service, err error) {
	s := &service{program: program, ended: make(chan error, 2)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.log, err = os.Create(filepath.Join(dir, "service.log")); err != nil {
		return nil, err
	}
	dsn, err := s.postgres(ctx, filepath.Join(dir, "postgres"))
	if err != nil {
		return nil, err
	}
	kek := make([]byte, 32)
	_, _ = rand.Read(kek) // never fails
	s.env = append(os.Environ(), "DATABASE_URL="+dsn, "FLOWLANE_KEK="+base64.StdEncoding.EncodeToString(kek),
		"FLOWLANE_DATA_DIR="+dir)
	if s.sim, err = s.launch(ctx, "sim", "dialer", "--json", "--listen", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	s.closers = append(s.closers, silent.Close)
	s.silent = silent.URL
	if s.url, err = s.launch(ctx, "serve", "--migrate", "--json", "--listen", "127.0.0.1:0", "--sim-url", s.sim,
		"--allow-host", silent.Listener.Addr().String(),
		"--request-limit", requestLimit, "--batch-retention", "0", "--call-retention", "0", "--delivery-retention", "0",
		"--audit-retention", "0",
		"--usage-retention", "0"); err != nil {
		return nil, err
	}
	var org struct{ ID string }
	if err := s.command(ctx, &org, "org", "create", "--json", "--name", "Contract"); err != nil {
		return nil, err
	}
	var key struct{ Key string }
	if err := s.command(ctx, &key, "apikey", "create", "--json", "--org", org.ID, "--name", "contract"); err != nil {
		return nil, err
	}
	s.key = key.Key
	if err := s.liftQuotas(ctx, org.ID); err != nil {
		return nil, err
	}
	return s, s.liftLimits(ctx)
}

func (s *service) postgres(ctx context.Context, dir string) (string, error) {
	if dsn := os.Getenv("FLOWLANE_CONTRACT_DATABASE_URL"); dsn != "" {
		return dsn, nil
	}
	server, err := devpg.Start(ctx, devpg.Options{DataDir: dir})
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		_ = server.Stop(ctx)
		_ = os.RemoveAll(dir)
	})
	return server.LocalDSN(), nil
}

// launch starts a command that goes on, and returns the address that it prints.
func (s *service) launch(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env, cmd.Stderr = s.env, s.log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var facts struct{ URL string }
	if err == nil {
		err = json.Unmarshal(line, &facts)
	}
	over := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		s.ended <- fmt.Errorf("flowlane %s has ended by itself: %w", args[0], err)
		over <- err
	}()
	s.closers = append(s.closers, func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-over
	})
	if err != nil {
		return "", fmt.Errorf("flowlane %s: %w; service.log says more", strings.Join(args, " "), err)
	}
	return facts.URL, nil
}

// command runs one that ends, and decodes what it prints.
func (s *service) command(ctx context.Context, out any, args ...string) error {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env, cmd.Stderr = s.env, s.log
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("flowlane %s: %w; service.log says more", strings.Join(args, " "), err)
	}
	return json.Unmarshal(text, out)
}

// liftQuotas lets the organization have as much as all tests leave behind together.
func (s *service) liftQuotas(ctx context.Context, org string) error {
	args := []string{"org", "set", "--json", "--org", org}
	for _, q := range orgquota.All {
		args = append(args, "--quota", q.Name+"="+strconv.Itoa(orgquota.Most))
	}
	var facts struct{}
	return s.command(ctx, &facts, args...)
}

// liftLimits lets the account of the fixtures call the simulated platform as often as it likes.
func (s *service) liftLimits(ctx context.Context) error {
	const limits = `{"limits":{"*":{"60":1000000,"3600":10000000,"86400":100000000}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.sim+"/_control/accounts/"+platformAccount,
		strings.NewReader(limits))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the simulator answers %s", res.Status)
	}
	return nil
}

// call asks the service for something and decodes the answer; out may be nil.
func (s *service) call(ctx context.Context, method, path string, body, out any) error {
	text, err := s.read(ctx, method, path, body)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// read asks the service for something and returns the answer.
func (s *service) read(ctx context.Context, method, path string, body any) ([]byte, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+prefix+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-API-Key", s.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	return text, nil
}

// fault tells whether a process has ended that should not have.
func (s *service) fault() error {
	select {
	case err := <-s.ended:
		return err
	default:
		return nil
	}
}

// close takes everything down, the last first.
func (s *service) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	if s.log != nil {
		_ = s.log.Close()
	}
}

var errTooLong = errors.New("waited for too long")
