package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mostExposure is ten times what systemd may think of the unit at worst, where 0 is none and 100 is root.
const mostExposure = "15"

// TestUnit: systemd knows every line of the unit, takes it for hardened, and waits for its end for long enough.
func TestUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Fatal("install systemd, which has systemd-analyze")
	}
	text := read(t, "systemd/flowlane.service")
	const start = "/usr/local/bin/flowlane"
	if strings.Count(text, "ExecStart="+start+" serve\n") != 1 {
		t.Errorf("it does not start %s", start)
	}
	unit := filepath.Join(t.TempDir(), "flowlane.service")
	here := strings.ReplaceAll(text, start, program(t)) // systemd looks whether it is there
	if err := os.WriteFile(unit, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", unit}, {"security", "--offline=true", "--no-pager", "--threshold=" + mostExposure, unit},
	} {
		said, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(said) > 0 {
			t.Errorf("systemd-analyze %v: %v\n%s", args, err, said)
		}
	}
	drain := duration(t, text, `FLOWLANE_DRAIN_TIMEOUT=(\S+)`)
	if stop := duration(t, text, `(?m)^TimeoutStopSec=(\S+)`); stop <= drain+stopMargin {
		t.Errorf("it is killed after %s, and may drain for %s", stop, drain)
	}
	var env []string
	for _, line := range regexp.MustCompile(`(?m)^Environment=(.*)$`).FindAllStringSubmatch(text, -1) {
		env = append(env, strings.Fields(strings.ReplaceAll(line[1], "%d", secretFolder(t)))...)
	}
	understands(t, env, []string{"serve"})
}

func duration(t *testing.T, text, pattern string) time.Duration {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("it has no %s", pattern)
	}
	d, err := time.ParseDuration(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return d
}
