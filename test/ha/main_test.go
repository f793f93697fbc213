package ha_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const (
	// asked has the test run.
	asked = "FLOWLANE_HA"
	// faultsVariable, a regular expression, picks faults.
	faultsVariable = "FLOWLANE_HA_FAULTS"
	// programVariable names the service's program, inside of the namespaces.
	programVariable = "FLOWLANE_HA_PROGRAM"
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
	path := filepath.Join(dir, "flowlane")
	if said, err := exec.Command("go", "build", "-o", path, "flowlane/cmd/flowlane").CombinedOutput(); err != nil {
		return fmt.Errorf("build flowlane: %w\n%s", err, said)
	}
	args := append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside},
		os.Args...)
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), programVariable+"="+path)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("inside of its namespaces: %w", err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(0)
	return nil
}
