package torture_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "flowlane-torture-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// program builds the service, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "flowlane")
	build := exec.Command("go", "build", "-o", path, "flowlane/cmd/flowlane")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build flowlane: %w\n%s", err, said)
	}
	return path, nil
})

// limits are the limits of time under which a process works.
type limits struct{ timeout, margin time.Duration }

// lease is how long a killed process holds up what it was doing.
const lease = time.Second

// hasty look into an unknown outcome soon.
var hasty = limits{timeout: time.Second, margin: 200 * time.Millisecond}

// patient have no call late because the machine is busy.
var patient = limits{timeout: 10 * time.Second, margin: time.Second}

// process is one process of the service.
type process struct {
	*exec.Cmd
	t *testing.T
	// url is the root of its API, once it is ready.
	url   string
	says  *announcement
	ended chan struct{}
}

// announcement waits for the address in what a process prints.
type announcement struct {
	*output
	url chan string
}

func (a *announcement) Write(p []byte) (int, error) {
	if _, url, ok := strings.Cut(string(p), "serves at "); ok {
		a.url <- strings.TrimSpace(url)
	}
	return a.output.Write(p)
}

// serve starts a process with these settings besides. It is killed when the test ends.
func (w *world) serve(l limits, settings ...string) *process {
	w.Helper()
	path, err := program()
	if err != nil {
		w.Fatal(err)
	}
	p := &process{Cmd: exec.Command(path, "serve"), t: w.T, says: &announcement{w.output, make(chan string, 1)},
		ended: make(chan struct{})}
	p.Env = append(os.Environ(), "DATABASE_URL="+w.dsn, "FLOWLANE_KEK="+kek, "FLOWLANE_LISTEN=127.0.0.1:0",
		"FLOWLANE_OPERATOR_LISTEN=none", "FLOWLANE_SIM_URL="+w.url,
		"FLOWLANE_ALLOW_HOSTS="+strings.TrimPrefix(w.url, "http://"),
		"FLOWLANE_CALL_TIMEOUT="+l.timeout.String(), "FLOWLANE_RECONCILE_MARGIN="+l.margin.String(), "FLOWLANE_LEASE="+
			lease.String(),
		"FLOWLANE_DRAIN_TIMEOUT=7s")
	p.Env = append(p.Env, settings...)
	p.Stdout, p.Stderr = p.says, w.output
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.Wait() // it is killed
	}()
	w.Cleanup(p.kill)
	return p
}

// ready waits until the process answers.
func (p *process) ready(w *world) *process {
	w.Helper()
	if p.url == "" {
		select {
		case p.url = <-p.says.url:
		case <-p.ended:
			w.output.show(w.T)
			w.Fatal("the process has ended")
		case <-time.After(60 * time.Second):
			w.output.show(w.T)
			w.Fatal("the process does not say where it serves")
		}
	}
	w.until("the service is ready", 60*time.Second, func() bool {
		resp, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// kill ends the process without warning; when it returns the process is no more.
func (p *process) kill() {
	_ = p.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

// stop halts the process where it stands; when it returns every thread stands still.
func (p *process) stop() {
	p.t.Helper()
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, p.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) proceed() {
	p.t.Helper()
	if err := p.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// output is what the processes of a world said.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	shown bool
}

func newOutput(t *testing.T) *output {
	o := &output{}
	t.Cleanup(func() { o.sum(t) })
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// sum prints how often each kind of error was logged.
func (o *output) sum(t *testing.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	said := map[string]int{}
	for line := range strings.Lines(o.text.String()) {
		if !strings.Contains(line, "level=ERROR") && !strings.Contains(line, `"level":"ERROR"`) {
			continue
		}
		if at := strings.Index(line, "msg"); at >= 0 {
			line = line[at:]
		}
		said[line[:min(len(line), 60)]]++
	}
	var lines []string
	for line, n := range said {
		lines = append(lines, fmt.Sprintf("%6d × %s", n, strings.TrimSpace(line)))
	}
	slices.Sort(lines)
	if len(lines) > 0 {
		t.Logf("errors that were logged:\n%s", strings.Join(lines, "\n"))
	}
	if to := os.Getenv("FLOWLANE_TORTURE_LOG"); to != "" {
		_ = os.WriteFile(filepath.Join(to, t.Name()+time.Now().Format("-150405")+".log"), o.text.Bytes(), 0o600)
	}
}

// show prints the end of what was said.
func (o *output) show(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shown {
		return
	}
	o.shown = true
	text := o.text.Bytes()
	t.Logf("the processes said, at the end:\n%s", text[max(0, len(text)-8000):])
}
