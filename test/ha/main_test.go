package ha_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"flowlane/schema"
)

const (
	// asked has the test run.
	asked = "FLOWLANE_HA"
	// faultsVariable, a regular expression, picks faults.
	faultsVariable = "FLOWLANE_HA_FAULTS"
	// programVariable names the service's program, inside of the namespaces.
	programVariable = "FLOWLANE_HA_PROGRAM"
	// nextVariable names the program of the version that comes after it.
	nextVariable = "FLOWLANE_HA_NEXT"
	// binaries is where Debian has the programs of Postgres.
	binaries = "/usr/lib/postgresql/15/bin"
)

// inside has the test be run by a shell that reaps what nobody waits for, as the first process of namespaces of their
// own: when it ends, so does everything that it started.
const inside = `ip link set lo up && mkdir -p /run/netns && mount -t tmpfs none /run/netns && "$0" "$@"; exit $?`

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" || os.Getenv(programVariable) != "" {
		os.Exit(m.Run())
	}
	err := enter()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// enter builds the service and goes on in the namespaces; it returns only with an error.
func enter() error {
	for _, name := range []string{"unshare", "ip", "setpriv", "patroni", "patronictl", "etcd", binaries + "/postgres"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is asked for and needs Debian's patroni, etcd-server, postgresql-15 and iproute2: %w",
				asked, err)
		}
	}
	dir, err := os.MkdirTemp("", "flowlane-ha-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, next := filepath.Join(dir, "flowlane"), filepath.Join(dir, "flowlane-next")
	if err := build(path); err != nil {
		return err
	}
	overlay, err := nextVersion(dir)
	if err != nil {
		return err
	}
	if err := build(next, "-overlay", overlay); err != nil {
		return err
	}
	args := append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside},
		os.Args...)
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), programVariable+"="+path, nextVariable+"="+next)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("inside of its namespaces: %w", err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(0)
	return nil
}

func build(path string, flags ...string) error {
	args := slices.Concat([]string{"build", "-o", path}, flags, []string{"flowlane/cmd/flowlane"})
	if said, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build flowlane: %w\n%s", err, said)
	}
	return nil
}

// migrations are what the next version adds to the schema: a column of the busiest table, and an index that is built
// beside writes.
var migrations = []string{`ALTER TABLE flow.batch_count ADD COLUMN next_version text;
COMMENT ON COLUMN flow.batch_count.next_version IS 'What only the next version knows.';
`, `-- migrate: outside a transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS schedule_next_version ON flow.schedule (org_id, description);
`}

// nextVersion writes an overlay of the sources that adds the migrations, and returns its path.
func nextVersion(dir string) (string, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	files := map[string]string{}
	for i, text := range migrations {
		name := fmt.Sprintf("%05d_next_version.sql", schema.Baseline+1+i)
		files[filepath.Join(root, "schema", name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	replace := map[string]map[string]string{"Replace": files}
	return overlay, os.WriteFile(overlay, must(json.Marshal(replace)), 0o600)
}
