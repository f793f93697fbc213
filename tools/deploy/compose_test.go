package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{deployFolder + "/compose.yaml"}, cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCompose: Docker Compose takes the file, what it mounts is there, nothing is open to other machines, and the
// service runs as it should.
func TestCompose(t *testing.T) {
	t.Parallel()
	p := project(t)
	if got := p.ServiceNames(); !slices.Equal(got, []string{"flowlane-1", "flowlane-2", "grafana", "migrate",
		"pgbouncer", "postgres", "prometheus"}) {
		t.Errorf("services: %v", got)
	}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: other machines reach port %s", name, port.Published)
			}
		}
		ours := strings.HasPrefix(s.Image, "flowlane:")
		if !ours && !regexp.MustCompile(`^docker\.io/.*:v?[0-9]`).MatchString(s.Image) {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		if (s.HealthCheck == nil) != (name == "migrate") {
			t.Errorf("%s: nobody knows whether it is well", name)
		}
		if ours {
			checkService(t, s)
		}
	}
}

func checkService(t *testing.T, s types.ServiceConfig) {
	t.Helper()
	if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
		t.Errorf("%s may too much", s.Name)
	}
	folder, env := secretFolder(t), []string(nil)
	for variable, value := range s.Environment {
		if file, ok := strings.CutPrefix(*value, "/run/secrets/"); ok {
			if !slices.ContainsFunc(s.Secrets, func(x types.ServiceSecretConfig) bool { return x.Source == file }) {
				t.Errorf("%s: %s is %s, which is not mounted", s.Name, variable, *value)
			}
			*value = folder + "/" + strings.TrimPrefix(file, "owner-")
		}
		env = append(env, variable+"="+*value)
	}
	args := []string(s.Command)
	if args == nil {
		args = []string{"serve"} // as the image has it
	}
	understands(t, env, args)
	if s.HealthCheck == nil {
		return
	}
	if test := s.HealthCheck.Test; !slices.Equal(test, []string{"CMD", "/flowlane", "ready"}) {
		t.Errorf("%s: it is asked by %v", s.Name, test)
	}
	understands(t, nil, s.HealthCheck.Test[2:])
	drain, err := time.ParseDuration(*s.Environment["FLOWLANE_DRAIN_TIMEOUT"])
	if grace := time.Duration(*s.StopGracePeriod); err != nil || grace <= drain+stopMargin {
		t.Errorf("%s: it is killed after %s, and may drain for %s", s.Name, grace, drain)
	}
}

// TestCompose_Secrets: the script makes each secret of the file, and makes none anew.
func TestCompose_Secrets(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not tested: the script gives a file to another user, for which one must be root")
	}
	script := filepath.Join(t.TempDir(), "secrets.sh")
	if err := os.WriteFile(script, []byte(read(t, "compose/secrets.sh")), 0o600); err != nil {
		t.Fatal(err)
	}
	var made [2]map[string]string
	for i := range made {
		if said, err := exec.CommandContext(t.Context(), "sh", script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		made[i] = map[string]string{}
		for name, secret := range project(t).Secrets {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(script), "secrets", filepath.Base(secret.File)))
			if err != nil || filepath.Base(secret.File) != name {
				t.Errorf("%s: %v", name, err)
			}
			made[i][name] = string(text)
			if again := made[0][name]; string(text) != again {
				t.Errorf("%s is made anew", name)
			}
		}
	}
	password := strings.TrimSpace(made[0]["app-password"])
	for _, name := range []string{"database-url", "pgbouncer-users"} {
		if len(password) < 48 || !strings.Contains(made[0][name], password) {
			t.Errorf("%s does not have the password", name)
		}
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(script), "secrets/kek"))
	if err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the key is open: %v, %v", info, err)
	}
}

// TestCompose_Pooler: PgBouncer makes no socket in its root, which is read-only: it would not start.
func TestCompose_Pooler(t *testing.T) {
	t.Parallel()
	if !project(t).Services["pgbouncer"].ReadOnly {
		t.Error("its root is not read-only")
	}
	if !regexp.MustCompile(`(?m)^unix_socket_dir *=$`).MatchString(read(t, "compose/pgbouncer.ini")) {
		t.Error("it makes a socket in the file system")
	}
}

// TestCompose_Prometheus: Prometheus takes its configuration.
func TestCompose_Prometheus(t *testing.T) {
	t.Parallel()
	token := filepath.Join(secretFolder(t), "operator-token")
	prometheus, err := filepath.Abs(deployFolder + "/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("/run/secrets/operator-token", token, "/etc/prometheus/flowlane", prometheus).Replace(
		read(t, "compose/prometheus.yaml"))
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "promtool", "check", "config", file).CombinedOutput()
	if err != nil || strings.Count(string(said), "rules found") != 2 {
		t.Errorf("promtool (of Debian's prometheus): %v\n%s", err, said)
	}
}
