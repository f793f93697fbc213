package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/vault"
)

// The service, the simulated platform and an idle River run as processes of their own, so that what each costs can be
// told apart. They are this program again, in a role that the environment names.
const (
	roleVariable = "FLOWLANE_BENCH_ROLE"
	roleService  = "service"
	rolePlatform = "platform"
	roleRiver    = "river"
	dsnVariable  = "DATABASE_URL"
	simVariable  = "FLOWLANE_SIM_URL"
	hostVariable = "FLOWLANE_BENCH_HOST"
	// profileVariable is the file for a CPU profile of the service; empty for none.
	profileVariable = "FLOWLANE_BENCH_PROFILE"
	// idleVariable keeps a service from carrying out due work.
	idleVariable = "FLOWLANE_BENCH_IDLE"
)

// child is a process of the bench.
type child struct {
	cmd *exec.Cmd
	// url is the root of what it serves.
	url string
}

// spawn starts this program in a role and waits until it says where it listens.
func spawn(ctx context.Context, e *env, role string, extra ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self) //nolint:gosec // this program
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), extra...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 15 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("the %s did not start: %w", role, errors.Join(err, cmd.Wait()))
	}
	c := &child{cmd, strings.TrimSpace(line)}
	e.closers = append(e.closers, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return c, nil
}

// inRole carries out a role; false where the environment names none.
func inRole(ctx context.Context) (bool, error) {
	switch os.Getenv(roleVariable) {
	case roleService:
		return true, runService(ctx)
	case rolePlatform:
		return true, runPlatform(ctx)
	case roleRiver:
		return true, runRiver(ctx)
	}
	return false, nil
}

func runService(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	kek, err := vault.LoadKEK(os.Getenv(vault.KEKVariable), "")
	if err != nil {
		return err
	}
	a, err := app.New(ctx, app.Config{
		DatabaseURL: os.Getenv(dsnVariable), Listen: "127.0.0.1:0", Workers: os.Getenv(idleVariable) == "", KEK: kek,
		AllowHosts: strings.Split(os.Getenv(hostVariable), ","),
		BaseURLs:   map[string]string{"dialer": os.Getenv(simVariable)}, Log: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelError})),
		RequestLimit: 10_000_000,      // so that no limit is reached, and requests are counted all the same
		Drain:        6 * time.Second, // what hangs at the end of a measurement is not waited for
	})
	if err != nil {
		return err
	}
	defer a.Close()
	stopProfile, err := startProfile(os.Getenv(profileVariable))
	if err != nil {
		return err
	}
	defer stopProfile()
	fmt.Println(a.URL())
	return a.Run(ctx)
}

func runPlatform(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	sim := dialersim.New(dialersim.Options{Seed: 1})
	defer sim.Close()
	const plenty = 1_000_000_000
	sim.SetAccount(benchAccount, dialersim.AccountSettings{Limits: map[string]map[int]int64{"*": {60: plenty,
		3600: plenty, 86400: plenty}}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	go func() { <-ctx.Done(); _ = server.Close() }()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

const benchAccount = "bench"

// stack starts the service and the platform once for all benches, with an organization, a key and a credential.
func (e *env) stack(ctx context.Context) (*service, error) {
	if e.service != nil {
		return e.service, nil
	}
	platform, err := spawn(ctx, e, rolePlatform)
	if err != nil {
		return nil, err
	}
	target, err := newTarget(ctx, e)
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	key := base64.StdEncoding.EncodeToString(secret)
	s := &service{http: &http.Client{}, platform: platform, target: target, kek: key}
	if err := s.serve(ctx, e); err != nil {
		return nil, err
	}
	if err := s.admit(ctx, e, benchAccount); err != nil {
		return nil, err
	}
	e.service = s
	return s, nil
}

// serve starts the service, with further settings of its environment, which come last. One that is idle leaves what
// waits in queues alone; it takes the place of the one before.
func (s *service) serve(ctx context.Context, e *env, extra ...string) error {
	settings := []string{dsnVariable + "=" + e.serviceDSN, simVariable + "=" + s.platform.url, vault.KEKVariable + "=" +
		s.kek,
		hostVariable + "=" + s.target.host, profileVariable + "=" + e.profile}
	served, err := spawn(ctx, e, roleService, append(settings, extra...)...)
	if err != nil {
		return err
	}
	if s.process != nil {
		_ = s.process.Process.Signal(syscall.SIGTERM)
		_ = s.process.Wait()
	}
	s.url, s.pid, s.process = served.url, served.cmd.Process.Pid, served.cmd
	return nil
}

// accounts are the organizations and keys of the service.
func (s *service) accounts(ctx context.Context, e *env) (*account.Service, error) {
	kek, err := vault.LoadKEK(s.kek, "")
	if err != nil {
		return nil, err
	}
	v, err := vault.New(kek)
	if err != nil {
		return nil, err
	}
	root, err := v.Root(ctx, e.pool)
	if err != nil {
		return nil, err
	}
	return app.Accounts(e.pool, root, slog.Default(), nil, nil)
}

// admit makes an organization, its key and its credential for an account of the platform.
func (s *service) admit(ctx context.Context, e *env, platformAccount string) error {
	accounts, err := s.accounts(ctx, e)
	if err != nil {
		return err
	}
	org, err := account.CreateOrg(ctx, e.pool, "bench")
	if err != nil {
		return err
	}
	if s.key, _, err = accounts.CreateKey(ctx, e.pool, account.NewKey{OrgID: org.ID, Name: "bench"}); err != nil {
		return err
	}
	var cred struct {
		ID        string
		TenancyID string `json:"tenancy_id"`
	}
	body := fmt.Appendf(nil, `{"name":"bench","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":%q,"password":"x"}}`, platformAccount)
	if err := s.call(ctx, http.MethodPost, "/credentials", body, &cred); err != nil {
		return err
	}
	s.org, s.credential, s.domain = org.ID, cred.ID, cred.TenancyID
	return s.call(ctx, http.MethodPost, "/platforms/dialer/domains/"+cred.TenancyID+"/refresh-limits", nil, nil)
}

// define makes an active definition of one task.
func (s *service) define(ctx context.Context, task string) (id string, err error) {
	var d struct{ ID string }
	body := strings.ReplaceAll(`{"name":"bench","status":"active","steps":[{"id":"s","tasks":[`+task+`]}]}`, "CRED",
		s.credential)
	err = s.call(ctx, http.MethodPost, "/flows/definitions", []byte(body), &d)
	return d.ID, err
}
