// Package pg owns the way to Postgres: the pool, transactions, migrations, and what its errors mean. It promises that a
// transaction is either committed, rolled back, or reported as unknown. It knows no table but those that migrations
// keep.
package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultMaxConns = 20
	connectTimeout  = 5 * time.Second
	// silence is how long nobody is told that a database is waited for.
	silence        = 500 * time.Millisecond
	statementCache = 512
)

// DB is what queries run on: a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
}

// Options tune a pool; the zero value is good for a server process that reaches Postgres itself.
type Options struct {
	// MaxConns bounds the connections of the pool; 0 means pool_max_conns of the DSN, else 20.
	MaxConns int
	// Pooled says that a pooler of transactions is between, such as PgBouncer.
	Pooled bool
	// Moved is told what the function Moved says, by each connection to a database that was restored; such a connection
	// writes nothing. Nil lets it write.
	Moved func(why string)
	// Losses is told what restores have lost, by each connection that tells Moved; nil for nobody.
	Losses *Losses
	// TrustFailover takes another timeline of the server's log for no reason.
	TrustFailover bool
}

// Open connects to the database that dsn names (a URL or key=value words) and checks that it answers. Times come back
// in UTC. The error names the host and database, never the password.
func Open(ctx context.Context, dsn string, opts Options) (*pgxpool.Pool, error) {
	cfg, err := config(dsn, opts)
	if err != nil {
		return nil, err
	}
	if opts.Pooled {
		kept, err := keepsStatements(ctx, cfg.ConnConfig.Copy())
		if err != nil {
			return nil, err
		}
		if !kept {
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
	}
	return connect(ctx, cfg)
}

func connect(ctx context.Context, cfg *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open a pool for %s: %w", address(cfg.ConnConfig), err)
	}
	waits := time.AfterFunc(silence, func() {
		slog.WarnContext(ctx, "waiting for Postgres", "address", address(cfg.ConnConfig), "for_at_most",
			cfg.ConnConfig.ConnectTimeout)
	})
	defer waits.Stop()
	if err := inForce(ctx, pool, cfg.ConnConfig.RuntimeParams); err != nil {
		pool.Close()
		return nil, &connectError{address(cfg.ConnConfig), err}
	}
	return pool, nil
}

// connectError says why there is no connection in a few words: pgx names every address and every attempt at it.
type connectError struct {
	address string
	err     error
}

func (e *connectError) Unwrap() error { return e.err }

func (e *connectError) Error() string {
	at := "no Postgres answers at " + e.address + "; check DATABASE_URL: "
	var host *net.DNSError
	var call *os.SyscallError
	var encoded encodingError
	switch refused, ok := asPg(e.err); {
	case errors.As(e.err, &encoded):
		return fmt.Sprintf("the database at %s %s", e.address, encoded.Error())
	case errors.Is(e.err, errPooled):
		return fmt.Sprintf("what answers at %s is not Postgres itself: %v", e.address, e.err)
	case ok:
		return fmt.Sprintf("Postgres at %s takes no connection; check DATABASE_URL: %s (SQLSTATE %s)", e.address,
			refused.Message, refused.Code)
	case errors.As(e.err, &host):
		return at + "the host is not found"
	case errors.As(e.err, &call):
		return at + call.Err.Error()
	case errors.Is(e.err, context.DeadlineExceeded):
		return at + "it did not answer in time"
	}
	return at + e.err.Error()
}

// encodingError is what a database is encoded in, which cannot hold all text that there is.
type encodingError string

func (e encodingError) Error() string {
	return fmt.Sprintf("is encoded in %s, and must be in UTF8: make another one by "+
		"CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0", string(e))
}

// unreadable says what an address looks like. What the parser says of one quotes it, with the password where that is
// not in its place; only files that an address names are named.
func unreadable(err error) error {
	say := errors.New("the Postgres address cannot be read; DATABASE_URL looks like " +
		"postgres://user:password@host:5432/name?sslmode=verify-full, " +
		"with %40 for an @ in the password, and so for other special characters")
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return fmt.Errorf("%w: %w", say, file)
	}
	return say
}

func config(dsn string, opts Options) (*pgxpool.Config, error) {
	if dsn == "" {
		return nil, fmt.Errorf("the Postgres address is empty; set DATABASE_URL, " +
			"for example postgres://user:password@127.0.0.1:5432/flowlane")
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, unreadable(err)
	}
	switch {
	case opts.MaxConns > 0:
		cfg.MaxConns = int32(min(opts.MaxConns, 1<<15)) //nolint:gosec // bounded
	case !namesPoolSize(dsn):
		cfg.MaxConns = defaultMaxConns
	}
	cfg.MaxConnIdleTime, cfg.PingTimeout = 5*time.Minute, pingFor
	conn := cfg.ConnConfig
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	conn.DialFunc = dial(conn.ConnectTimeout)
	conn.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	conn.StatementCacheCapacity = statementCache
	if !opts.Pooled {
		setDefault(conn.RuntimeParams, "application_name", "flowlane")
		for name, value := range sessionSettings {
			setDefault(conn.RuntimeParams, name, value)
		}
	}
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		if in := c.PgConn().ParameterStatus("server_encoding"); in != "" && in != "UTF8" {
			return encodingError(in)
		}
		if !opts.Pooled {
			if _, err := c.PgConn().Exec(ctx, keepMemory).ReadAll(); err != nil {
				return fmt.Errorf("set up a connection: %w", err)
			}
		}
		registerUUID(c)
		c.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		if opts.Moved != nil {
			return closeMoved(ctx, c, opts)
		}
		return nil
	}
	return cfg, nil
}

// namesPoolSize tells whether the DSN itself sets the pool's size; pgxpool drops the setting while parsing.
func namesPoolSize(dsn string) bool {
	conn, err := pgx.ParseConfig(dsn)
	if err != nil {
		return false
	}
	_, named := conn.RuntimeParams["pool_max_conns"]
	return named
}

func setDefault(m map[string]string, key, value string) {
	if _, set := m[key]; !set {
		m[key] = value
	}
}

func address(c *pgx.ConnConfig) string {
	if len(c.Host) > 0 && c.Host[0] == '/' {
		return fmt.Sprintf("%s (socket, port %d, database %s)", c.Host, c.Port, c.Database)
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + c.Database
}
