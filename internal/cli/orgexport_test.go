package cli_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// archived reads an archive to its end.
func archived(t *testing.T, text []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(plain); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		var body []byte
		if err == nil {
			body, err = io.ReadAll(archive)
		}
		if err != nil {
			t.Fatal(err)
		}
		files[head.Name] = string(body)
	}
}

func insert(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// inFolder are the names of the files of a folder.
func inFolder(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestOrg_Export: an organization is named by its id or its name, and exported to a file or to standard output while it
// is active or suspended; what is on its way out is not.
func TestOrg_Export(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	env, folder := []string{"DATABASE_URL=" + dsn}, t.TempDir()
	ids := map[string]string{}
	for _, name := range []string{"Acme", "Other", "Twin", "Twin"} {
		var org struct{ ID string }
		output(t, env, &org, "org", "create", "--name", name)
		ids[name] = org.ID
	}
	file := filepath.Join(folder, "acme.tar.gz")
	var facts struct {
		OrgID             string `json:"org_id"`
		File              string
		Files, Rows, Byte int64
	}
	for _, by := range []string{"Acme", ids["Acme"]} {
		if output(t, env, &facts, "org", "export", by, file); facts.OrgID != ids["Acme"] || facts.File != file ||
			facts.Files < 40 || facts.Rows == 0 {
			t.Errorf("%s: %+v", by, facts)
		}
		output(t, env, &struct{}{}, "org", "suspend", "--org", ids["Acme"])
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := archived(t, text)
	if files["manifest.json"] == "" || strings.Count(files["tables/audit_log.ndjson"], `"action":"org export"`) != 2 ||
		!strings.Contains(files["tables/organization.ndjson"], `"status":"suspended"`) {
		t.Errorf("the archive has %s, %s and %s", files["manifest.json"], files["tables/audit_log.ndjson"],
			files["tables/organization.ndjson"])
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it may be read by others: %v, %v", info.Mode(), err)
	}
	cmd := program(t, env, "org", "export", "Other", "-")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if text, err = cmd.Output(); err != nil {
		t.Fatal(err, stderr.String())
	}
	if !strings.Contains(archived(t, text)["manifest.json"], ids["Other"]) || !strings.Contains(stderr.String(),
		"export 100%") {
		t.Errorf("to standard output: %s", stderr.String())
	}
	insert(t, pool, "UPDATE flow.organization SET status = 'deleting' WHERE id = $1", ids["Other"])
	for _, c := range []struct {
		name, want string
		code       int
	}{
		{"Twin", "2 organizations are called \"Twin\": say which by its id", 2},
		{"Nobody", `no organization is called "Nobody"`, 5},
		{"019f0000-0000-7000-8000-000000000000", "there is no organization", 5},
		{"Other", "it is deleted, or is being deleted", 1},
	} {
		code, text := fails(t, env, "org", "export", c.name, filepath.Join(folder, "none.tar.gz"))
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	if names := inFolder(t, folder); len(names) != 1 {
		t.Errorf("there are %v", names)
	}
}

// TestOrg_Export_Stopped: an export that is interrupted, or whose organization begins to be deleted meanwhile, leaves
// no file.
func TestOrg_Export_Stopped(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	for name, c := range map[string]struct {
		meanwhile func(cmd *exec.Cmd)
		code      int
		say       string
	}{
		"interrupted": {func(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGINT) }, 130, "stopped"},
		"deleted": {func(*exec.Cmd) {
			insert(t, pool, "UPDATE flow.organization SET status = 'deleting' WHERE id = $1", org.ID)
		}, 1,
			"it is deleted, or is being deleted"},
	} {
		insert(t, pool, "UPDATE flow.organization SET status = 'active' WHERE id = $1", org.ID)
		folder := t.TempDir()
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "LOCK TABLE flow.usage IN ACCESS EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
		cmd := program(t, env, "org", "export", org.ID, filepath.Join(folder, "acme.tar.gz"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waits := 0
		for look := time.NewTicker(20 * time.Millisecond); waits == 0; <-look.C {
			if err := pool.QueryRow(t.Context(),
				"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'flow.usage'::regclass").Scan(
				&waits); err != nil {
				t.Fatal(err)
			}
		}
		if len(inFolder(t, folder)) == 0 {
			t.Errorf("%s: nothing is written yet", name)
		}
		c.meanwhile(cmd)
		if c.code != 130 {
			_ = tx.Rollback(t.Context())
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != c.code || !strings.Contains(stderr.String(),
			c.say) {
			t.Errorf("%s: %v %s", name, err, stderr.String())
		}
		_ = tx.Rollback(t.Context())
		if names := inFolder(t, folder); len(names) > 0 {
			t.Errorf("%s: it left %v", name, names)
		}
	}
}

// TestOrg_Export_Pieces: however many rows a table has, however many batches there are and however large they are, each
// row is exported once, and those of others are not.
func TestOrg_Export_Pieces(t *testing.T) {
	t.Parallel()
	s := startServing(t)
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]`)
	batch := s.trigger(flow, `{"n":1}`)
	s.over(t, batch)
	var other struct{ ID string }
	output(t, s.env, &other, "org", "create", "--name", "Other")
	pool := connect(t, s.env)
	// Batches of few records are read together, large ones in pieces: of 2,300 there are three large ones with more
	// rows than a piece.
	insert(t, pool, `CREATE TEMP TABLE copy AS SELECT n, (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid AS id FROM generate_series(1, 2300) n`)
	insert(t, pool, `INSERT INTO flow.batch SELECT (jsonb_populate_record(b, jsonb_build_object('id', c.id, 'page_set', NULL,
		'record_count', 1) || CASE WHEN c.n % 1000 = 7 THEN '{"record_count": 20000, "page": null, "page_bytes": null}' ELSE '{}'::jsonb END)).* FROM flow.batch b, copy c WHERE b.id = $1`, batch)
	insert(t, pool, `INSERT INTO flow.batch_count SELECT (jsonb_populate_record(b, jsonb_build_object('batch_id', c.id))).* FROM flow.batch_count b, copy c WHERE b.batch_id = $1`, batch)
	insert(t, pool, `INSERT INTO flow.element (batch_id, position, step_no, task_no, element, output)
		SELECT c.id, p, 0, 0, 0, '1' FROM copy c, generate_series(1, CASE WHEN c.n % 1000 = 7 THEN 2000 ELSE 2 END) p`)
	insert(t, pool, `INSERT INTO flow.audit_log (id, org_id, created_at, action, resource_type, resource_name, outcome, request_id)
		SELECT gen_random_uuid(), o.id, '2020-01-01'::timestamptz + make_interval(days => n / 700), 'many', 't', n::text, 'succeeded', ''
		FROM generate_series(0, 2799) n, flow.organization o`)

	file := filepath.Join(t.TempDir(), "acme.tar.gz")
	output(t, s.env, &struct{}{}, "org", "export", "Acme", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := archived(t, text)
	for table, want := range map[string]int{"batch": 2301, "batch_count": 2301, "element": 3*2000 + 2297*2} {
		seen := map[string]bool{}
		for line := range strings.Lines(files["tables/"+table+".ndjson"]) {
			seen[line] = true
		}
		if lines := strings.Count(files["tables/"+table+".ndjson"], "\n"); lines != want || len(seen) != want {
			t.Errorf("flow.%s: %d rows, %d of them different, want %d", table, lines, len(seen), want)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(files["tables/audit_log.ndjson"]) {
		var row struct {
			Action       string
			ResourceName string `json:"resource_name"`
			OrgID        string `json:"org_id"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.OrgID == other.ID {
			t.Fatalf("%s: %v", line, err)
		}
		if row.Action == "many" {
			seen[row.ResourceName] = true
		}
	}
	if len(seen) != 2800 {
		t.Errorf("%d rows of the audit log are there", len(seen))
	}
	results := 0
	for name := range files {
		if strings.HasPrefix(name, "results/") {
			results++
		}
	}
	if results != 2301 {
		t.Errorf("%d files of results", results)
	}
}

// TestOrg_Export_Memory: an export of a hundred times as much takes no more memory.
func TestOrg_Export_Memory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the unit of the most memory that a process had is another one")
	}
	dsn, pool := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "GOGC=50"}
	peaks := map[int]int64{}
	for _, rows := range []int{10, 4000} {
		var org struct{ ID string }
		output(t, env, &org, "org", "create", "--name", fmt.Sprint("Acme ", rows))
		insert(t, pool, `INSERT INTO flow.event_arrival (org_id, event_id, event_kind, payload, occurred_at)
			SELECT $1, gen_random_uuid(), 'k', json_build_object('text', repeat(md5(n::text), 2000)), now() FROM generate_series(1, $2) n`, org.ID, rows)
		cmd := program(t, env, "org", "export", org.ID, filepath.Join(t.TempDir(), "a.tar.gz"))
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, text)
		}
		peaks[rows] = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	if peaks[4000] > peaks[10]+32<<20 {
		t.Errorf("256 MB take %d MiB, 640 kB %d", peaks[4000]>>20, peaks[10]>>20)
	}
}

// connect has one connection to the database of an environment.
func connect(t *testing.T, env []string) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), strings.TrimPrefix(env[0], "DATABASE_URL="), pg.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
