package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/cell"
	"flowlane/internal/cli/remote"
	"flowlane/internal/pg"
)

// The settings that a development server writes down.
const (
	varURL      = "FLOWLANE_URL"
	varKey      = "FLOWLANE_API_KEY"
	varDatabase = "DATABASE_URL"
	varSim      = "FLOWLANE_SIM_URL"
	varKEKFile  = "FLOWLANE_KEK_FILE"
)

// settingNames is their order in the file.
var settingNames = []string{varURL, varKey, varDatabase, varSim, varKEKFile}

// folder is the flag of commands that use the data of a development server.
type folder struct {
	DataDir string `name:"data-dir" group:"server" default:".flowlane" env:"FLOWLANE_DATA_DIR" help:"Folder of the development server's data and settings." type:"path"`
}

func (f folder) envFile() string { return filepath.Join(f.DataDir, "env") }

// kekFile is the key-encryption key of the folder.
func (f folder) kekFile() string { return filepath.Join(f.DataDir, "kek") }

// settings reads the settings file; there are none when it is not there.
func (f folder) settings() (map[string]string, error) {
	file, err := os.Open(f.envFile())
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	defer file.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(name, "#") {
			out[name] = value
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.envFile(), err)
	}
	return out, nil
}

// save replaces the settings file, which only its owner may read.
func (f folder) save(settings map[string]string) error {
	var text strings.Builder
	for _, name := range settingNames {
		if settings[name] != "" {
			fmt.Fprintf(&text, "%s=%s\n", name, settings[name])
		}
	}
	if err := writeFile(f.envFile(), []byte(text.String())); err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}
	return nil
}

// writeFile replaces a file whole or not at all; only its owner may read it.
func writeFile(path string, text []byte) error {
	return writeWhole(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err //nolint:wrapcheck // names the file
	})
}

// writeWhole is writeFile for what is written piece by piece.
func writeWhole(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// setting returns the value of a flag or, where that is empty, what the development server in this folder wrote down.
func (f folder) setting(given, name string) (string, error) {
	if given != "" {
		return given, nil
	}
	settings, err := f.settings()
	return settings[name], err
}

// target says which server a command talks to.
type target struct {
	folder

	Profile string `group:"server" env:"FLOWLANE_PROFILE" help:"Profile of flowlane login; goes before the next two." placeholder:"NAME"`
	URL     string `name:"url" group:"server" placeholder:"URL" env:"FLOWLANE_URL" help:"Root of the server. Default: the development server of the data folder, then the current profile."`
	Key     string `name:"api-key" group:"server" placeholder:"KEY" env:"FLOWLANE_API_KEY" help:"API key. Better set by the environment, or by flowlane login."`
}

// client finds the server and its key. A key goes only to the server that it was written down with.
func (t target) client() (*remote.Client, error) {
	saved, err := loadProfiles()
	if err != nil {
		return nil, err
	}
	if t.Profile != "" {
		p, err := saved.named(t.Profile)
		if err != nil {
			return nil, err
		}
		return remote.New(p.URL, p.Key) //nolint:wrapcheck // says what to set
	}
	settings, err := t.settings()
	if err != nil {
		return nil, err
	}
	server, key := t.URL, t.Key
	if server == "" {
		server = settings[varURL]
	}
	if server == "" {
		p, ok := saved.Profiles[saved.Current]
		if !ok && stateLocked(t.DataDir) {
			return nil, fmt.Errorf("no server yet: the one of %s is starting; try again once it says that it is ready",
				t.DataDir)
		}
		if !ok {
			return nil, fmt.Errorf("no server: run `flowlane login URL`, set %s and %s, "+
				"or start one here with `flowlane dev`",
				varURL, varKey)
		}
		return remote.New(p.URL, p.Key) //nolint:wrapcheck // says what to set
	}
	if key == "" && settings[varURL] == server {
		key = settings[varKey]
	}
	if key == "" {
		key = saved.keyOf(server)
	}
	return remote.New(server, key) //nolint:wrapcheck // says what to set
}

// database says which database a command works on.
type database struct {
	folder

	DatabaseURL string `name:"database-url" env:"DATABASE_URL" help:"Postgres address. Default: that of the development server of the data folder."`
	Pooled      bool   `name:"pooled" env:"FLOWLANE_POOLED" negatable:"" help:"A pooler of transactions answers there, such as PgBouncer. Migrations need Postgres itself."`
}

// blobs says where large bodies are that are not in the database.
type blobs struct {
	BlobURL string `name:"blob-url" env:"FLOWLANE_BLOB_URL" help:"Store of large bodies, as s3://BUCKET/PREFIX?endpoint=URL&region=NAME&path_style=true; its keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Default: none, all is in Postgres."`
}

// open connects to a database that may be of any age, or empty.
func (d database) open(ctx context.Context) (*pgxpool.Pool, error) {
	dsn, err := d.setting(d.DatabaseURL, varDatabase)
	if err != nil {
		return nil, err
	}
	pool, err := pg.Open(ctx, dsn, pg.Options{MaxConns: 2, Pooled: d.Pooled})
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return pool, nil
}

// openCell connects to a migrated database, and has what is made there carry its cell.
func (d database) openCell(ctx context.Context) (*pgxpool.Pool, error) {
	pool, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	n, err := pg.Cell(ctx, pool)
	if err == nil {
		err = cell.Use(n)
	}
	if err != nil {
		pool.Close()
		return nil, unmigrated(err)
	}
	return pool, nil
}
