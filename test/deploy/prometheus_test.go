package deploy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flowlane/test/servers"
)

// shipped is where the rules are.
const shipped = "../../deploy/prometheus"

// installed is the path of a program of Debian's package prometheus.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		servers.Missing(t, "install prometheus (Debian's package), which has %s", name)
	}
	return path
}

// prometheus is one that scrapes processes twice a second and evaluates the rules that ship as often. Its alerts fire
// at once: how long each waits is what promtool's tests say.
type prometheus struct {
	url   string
	began time.Time
	fired map[string]bool
}

var waits = regexp.MustCompile(`(?m)^( +for:) .*$`)

func startPrometheus(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"rules.yaml", "alerts.yaml"} {
		text, err := os.ReadFile(filepath.Join(shipped, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), waits.ReplaceAll(text, []byte("$1 0s")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	config := fmt.Sprintf(`global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [rules.yaml, alerts.yaml]
scrape_configs: [{job_name: flowlane, static_configs: [{targets: [%s]}]}]
`, strings.ReplaceAll(strings.Join(targets, ", "), "http://", ""))
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // Prometheus does not say which free port it took
	cmd := exec.CommandContext(t.Context(), installed(t, "prometheus"), "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	p := &prometheus{url: "http://" + address, began: time.Now(), fired: map[string]bool{}}
	await(t, "Prometheus has scraped them all", func() bool {
		res, err := client.Get(p.url + "/api/v1/query?query=count(flowlane_database_up)")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return err == nil && strings.Contains(string(text), fmt.Sprintf(`"%d"]`, len(targets)))
	})
	return p
}

// ask decodes the data of an answer, and returns its error if it is one.
func (p *prometheus) ask(t *testing.T, data any, path string, values url.Values) string {
	t.Helper()
	status, text := send(t, http.MethodGet, p.url+"/api/v1/"+path+"?"+values.Encode(), "", "")
	answer := struct {
		Data  any
		Error string
	}{Data: data}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %d %s: %v", path, status, text, err)
	}
	return answer.Error
}

// fires waits until each of these alerts has fired.
func (p *prometheus) fires(t *testing.T, names ...string) {
	t.Helper()
	p.firesBy(t, func() {}, names...)
}

// firesBy has a fault happen again and again until each of these alerts has fired.
func (p *prometheus) firesBy(t *testing.T, fault func(), names ...string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("these have fired: %v", p.fired)
		}
	}()
	await(t, fmt.Sprintf("the alerts %v fire", names), func() bool {
		fault()
		p.look(t)
		return !slices.ContainsFunc(names, func(name string) bool { return !p.fired[name] })
	})
}

// look notes which alerts fire now.
func (p *prometheus) look(t *testing.T) {
	t.Helper()
	var data struct {
		Alerts []struct {
			State  string
			Labels struct{ Alertname string }
		}
	}
	if said := p.ask(t, &data, "alerts", nil); said != "" {
		t.Fatal(said)
	}
	for _, a := range data.Alerts {
		p.fired[a.Labels.Alertname] = p.fired[a.Labels.Alertname] || a.State == "firing"
	}
}

// await waits until done, for a minute at most.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	late := time.After(time.Minute)
	for !done() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("it does not come to it that %s", what)
		}
	}
}
