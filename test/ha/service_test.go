package ha_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	processes = 3
	// drain is how long calls under way may go on when a process is asked to stop.
	drain = 10 * time.Second
	// woken is the metric of work that nobody was to do.
	woken = "flowlane_sweep_woken_total"
)

// service is the processes of the service, each at an address that it keeps.
type service struct {
	*testing.T

	env []string
	// program is what is started.
	program   string
	processes []*process
	log       *os.File
	// swept is what processes that have ended counted of woken.
	swept float64
}

type process struct {
	*exec.Cmd

	url, operator string
	ended         chan struct{}
	// down says that it may be gone: callers may find nobody there.
	down atomic.Bool
}

// newService migrates the database and starts the processes.
func newService(t *testing.T, dsn, dir, platform string) *service {
	t.Helper()
	kek := make([]byte, 32)
	_, _ = rand.Read(kek) // never fails
	s := &service{T: t, program: os.Getenv(programVariable), log: must(os.Create(filepath.Join(dir, "flowlane.log"))),
		env: append(os.Environ(), "DATABASE_URL="+dsn, "FLOWLANE_KEK="+base64.StdEncoding.EncodeToString(kek),
			"FLOWLANE_TRUST_FAILOVER=true", "FLOWLANE_SIM_URL="+platform, "FLOWLANE_DRAIN_TIMEOUT="+drain.String(),
			"FLOWLANE_CALL_TIMEOUT=10s", "FLOWLANE_ALLOW_HOSTS="+strings.TrimPrefix(platform, "http://"))}
	t.Cleanup(func() {
		if text := must(os.ReadFile(s.log.Name())); t.Failed() {
			t.Logf("the processes said, at the end:\n%s", text[max(0, len(text)-8000):])
		}
	})
	s.run("migrate", "up")
	for i := range processes {
		s.processes = append(s.processes, &process{url: fmt.Sprintf("http://127.0.0.1:%d", 8081+i),
			operator: fmt.Sprintf("127.0.0.1:%d", 9081+i)})
		s.start(i)
	}
	s.ready(30 * time.Second)
	return s
}

// run runs a command of the operator, and returns what it printed.
func (s *service) run(args ...string) string {
	s.Helper()
	cmd := exec.Command(s.program, args...)
	cmd.Env, cmd.Stderr = s.env, s.log
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("flowlane %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

func (s *service) start(i int) {
	s.Helper()
	p := s.processes[i]
	p.Cmd = exec.Command(s.program, "serve")
	p.Env = slices.Concat(s.env, []string{"FLOWLANE_LISTEN=" + strings.TrimPrefix(p.url, "http://"),
		"FLOWLANE_OPERATOR_LISTEN=" + p.operator})
	p.Stdout, p.Stderr = s.log, s.log
	if err := p.Start(); err != nil {
		s.Fatal(err)
	}
	p.ended = reap(p.Cmd)
}

// ready waits until every process can serve.
func (s *service) ready(waitLimit time.Duration) {
	s.Helper()
	for i, p := range s.processes {
		until(s.T, fmt.Sprintf("process %d is ready", i+1), waitLimit, func() bool {
			select {
			case <-p.ended:
				s.Fatalf("process %d has ended", i+1)
			default:
			}
			return p.status() == "ok"
		}, func() { s.Logf("it says %q", p.status()) })
		p.down.Store(false)
	}
}

// status is what /readyz says.
func (p *process) status() string {
	client := http.Client{Timeout: 5 * time.Second}
	res, err := client.Get(p.url + "/readyz")
	if err != nil {
		return "no answer"
	}
	defer res.Body.Close()
	var out struct{ Status string }
	_ = json.NewDecoder(res.Body).Decode(&out) // an empty one is none
	return out.Status
}

// kill ends a process without warning.
func (s *service) kill(i int) {
	s.Helper()
	s.swept += s.sweptBy(i)
	s.processes[i].down.Store(true)
	_ = s.processes[i].Process.Kill() // it may have ended
	<-s.processes[i].ended
}

// stop asks a process to end, and waits for it.
func (s *service) stop(i int) {
	s.Helper()
	p := s.processes[i]
	s.swept += s.sweptBy(i)
	p.down.Store(true)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	select {
	case <-p.ended:
		if code := p.ProcessState.ExitCode(); code != 0 {
			s.Errorf("process %d ended with %d when it was asked to stop", i+1, code)
		}
	case <-time.After(drain + 10*time.Second):
		s.Fatalf("process %d has not ended", i+1)
	}
}

// roll replaces the processes one after the other by such of a program.
func (s *service) roll(program string) {
	s.Helper()
	s.program = program
	for i := range s.processes {
		s.stop(i)
		s.start(i)
		s.ready(time.Minute)
	}
}

// sweptBy is how much work a process found that nobody was to do.
func (s *service) sweptBy(i int) (sum float64) {
	s.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Get("http://" + s.processes[i].operator + "/metrics")
	if err != nil {
		s.Errorf("metrics of process %d: %v", i+1, err)
		return 0
	}
	defer res.Body.Close()
	for line := range strings.Lines(string(must(io.ReadAll(res.Body)))) {
		if fields := strings.Fields(line); strings.HasPrefix(line, woken) && len(fields) == 2 {
			sum += must(strconv.ParseFloat(fields[1], 64))
		}
	}
	return sum
}

// errors are the errors that processes logged, by their message.
func (s *service) errors() map[string]int {
	s.Helper()
	out := map[string]int{}
	for line := range bytes.Lines(must(os.ReadFile(s.log.Name()))) {
		if _, rest, ok := bytes.Cut(line, []byte(`level=ERROR msg="`)); ok {
			said, _, _ := bytes.Cut(rest, []byte(`"`))
			out[string(said)]++
		}
	}
	return out
}
