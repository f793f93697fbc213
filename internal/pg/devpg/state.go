package devpg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// state is how to reach a server; it is kept in the data folder for other processes and for the next start.
type state struct {
	TCP    string `json:"dsn"`
	Socket string `json:"socket_dsn,omitempty"`
	Port   int    `json:"port"`
}

// maxSocketPath is the least that any system allows for a socket's path, with its ending zero.
const maxSocketPath = 103

func newState(port int, password, socketDir string) state {
	login := url.UserPassword(user, password)
	tcp := url.URL{Scheme: "postgres", User: login, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: database, RawQuery: "sslmode=disable"}
	st := state{TCP: tcp.String(), Port: port}
	if socketDir != "" {
		query := url.Values{"host": {socketDir}, "port": {strconv.Itoa(port)}}.Encode()
		// In addresses of Postgres a plus stands for itself.
		socket := url.URL{Scheme: "postgres", User: login, Path: "/" + database, RawQuery: strings.ReplaceAll(query,
			"+", "%20")}
		st.Socket = socket.String()
	}
	return st
}

// socketDir is where the server's Unix socket can lie: dir, or nowhere when its path would be too long. Addresses and
// settings take a comma for the end of a folder's name.
func socketDir(dir string) string {
	if len(filepath.Join(dir, ".s.PGSQL.65535.lock")) > maxSocketPath || strings.ContainsAny(dir, `,"`) {
		return ""
	}
	return dir
}

func statePath(dataDir string) string { return filepath.Join(dataDir, "pg.json") }

func (st state) save(dataDir string) error {
	content, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("write the server's address: %w", err)
	}
	if err := writeSecret(statePath(dataDir), content); err != nil {
		return fmt.Errorf("write the server's address: %w", err)
	}
	return nil
}

func loadState(dataDir string) (state, error) {
	var st state
	content, err := os.ReadFile(statePath(dataDir))
	if err != nil {
		return st, fmt.Errorf("read the server's address: %w", err)
	}
	if err := json.Unmarshal(content, &st); err != nil {
		return st, fmt.Errorf("read the server's address: %w", err)
	}
	return st, nil
}

// answers tries to reach the database, and creates it when the server lacks it.
func (st state) answers(ctx context.Context) error {
	err := try(ctx, st.address(), "")
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "3D000" {
		return try(ctx, st.address(), "postgres")
	}
	return err
}

func (st state) address() string {
	if st.Socket != "" {
		return st.Socket
	}
	return st.TCP
}

// try connects; to the database named instead, where one is, to create ours.
func try(ctx context.Context, dsn, instead string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("read the server's address: %w", err)
	}
	if instead != "" {
		cfg.Database = instead
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err //nolint:wrapcheck // callers look at the code
	}
	defer func() { _ = conn.Close(ctx) }()
	if instead == "" {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return fmt.Errorf("create the database %s: %w", database, err)
	}
	return nil
}

// writeSecret replaces a file, whole, with one that only its owner can read.
func writeSecret(path string, content []byte) error {
	next := path + ".new"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err //nolint:wrapcheck // names the path
	}
	return os.Rename(next, path) //nolint:wrapcheck // names the path
}
