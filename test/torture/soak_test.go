package torture_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
)

const (
	// soakRate is how many messages a second are sent, killRate where the process is killed, soakSenders by how many at
	// once.
	soakRate    = 300
	killRate    = 100
	soakSenders = 64
	// killEvery is how often it is killed then.
	killEvery = 4 * time.Second
	// soakOrgs have two flows each.
	soakOrgs = 50
	// soakAttempts is how often a call may be made that may be repeated.
	soakAttempts = 2
	// soakLine is how often it is told how it goes.
	soakLine = 10 * time.Second
)

// soaked are the limits of time of a soak: who answers is never late because the machine is busy. killed have what was
// under way at a kill be looked into soon.
var (
	soaked = limits{timeout: 30 * time.Second, margin: time.Second}
	killed = limits{timeout: 6 * time.Second, margin: time.Second}
)

// manner is what a receiver does.
type manner string

const (
	answers manner = "answers"
	hangs   manner = "hangs"
	fails   manner = "answers 500"
	dead    manner = "is dead"
)

// strange are the receivers that do not answer well, of a hundred.
var strange = map[int]manner{7: hangs, 22: hangs, 41: hangs, 63: hangs, 80: hangs, 14: fails, 51: fails, 34: dead}

// soakFlow is a flow of one call, its webhook and its receiver.
type soakFlow struct {
	*post

	method string
	manner manner
}

// soak is a steady load of signed messages for the flows of many organizations.
type soak struct {
	*world

	process *process
	limits  limits
	rate    int
	// kills is how often the process is killed, and deaths how often it was.
	kills, deaths int
	flows         []*soakFlow
	// mix is what goes on beside the messages; nil for nothing. samples is where the figures of each line go.
	mix     *mix
	samples *samples
	// host is the address of the receivers, refusing one at which nobody listens.
	host, refusing string

	mu sync.Mutex
	// sent is when each message was to be sent, by its number, came how often its call arrived.
	sent []time.Time
	came []uint8
	// took is how long calls took to arrive since the last line.
	took []time.Duration
	// last is the sample before.
	last sample

	acked, cut atomic.Int64
	// sizes are the resident sizes of the process, second by second.
	sizes []int
}

// soakFor is how long messages are sent.
func soakFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("FLOWLANE_SOAK")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		t.Fatalf("FLOWLANE_SOAK is %q: give it a time, such as 30m", text)
	}
	return d
}

// Many organizations get messages at a steady rate, and of their receivers some hang, some answer 500 and one is dead.
// Beside them another one starts large batches, and has schedules that fire each minute. Each message becomes one batch,
// each record ends, no call is made more often than it may be, nothing is left behind, and memory does not grow.
func TestSoak(t *testing.T) {
	t.Parallel()
	server := must(devpg.Start(t.Context(), devpg.Options{DataDir: t.TempDir()}))
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	pool := must(pg.Open(t.Context(), server.DSN(), pg.Options{MaxConns: 10}))
	t.Cleanup(pool.Close)
	if err := pg.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := newSoak(setupOn(t, server.DSN(), pool, 1), soaked, soakRate)
	s.samples = newSamples(t)
	s.mix = newMix(s)
	s.load(soakFor(t))
	s.mix.end()
	s.settled()
	s.check()
	s.mix.check()
	s.checkMemory(soakFor(t))
	s.process.kill()
}

// The same load, while the process is killed again and again: what was acknowledged becomes one batch, what can be
// repeated is, and what cannot arrives once at most.
func TestKill_Soak(t *testing.T) {
	t.Parallel()
	s := newSoak(setup(t, 0), killed, killRate)
	s.kills = (kills(t) + 4) / 5
	s.load(time.Duration(s.kills+1) * killEvery)
	s.settled()
	s.check()
	s.process.kill()
	if done := s.count("SELECT count(*) FROM flow.batch_count WHERE completed = 1"); done < len(s.sent)*4/5 {
		t.Errorf("%d of %d records are completed: of 100 receivers %d answer well", done, len(s.sent), 100-len(strange))
	}
	if s.deaths != s.kills || s.cut.Load() == 0 {
		t.Errorf("%d of %d kills, which cut %d requests: the test shows nothing", s.deaths, s.kills, s.cut.Load())
	}
}

// refusing is an address at which nobody listens, nor will: the port is taken by a socket that does not listen.
func refusing(w *world) string {
	w.Helper()
	socket := must(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	w.Cleanup(func() { _ = syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		w.Fatal(err)
	}
	bound, _ := must(syscall.Getsockname(socket)).(*syscall.SockaddrInet4)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.Port))
}

func newSoak(w *world, l limits, rate int) *soak {
	w.Helper()
	s := &soak{world: w, limits: l, rate: rate}
	receiver := httptest.NewServer(http.HandlerFunc(s.receive))
	w.Cleanup(func() {
		receiver.CloseClientConnections()
		receiver.Close()
	})
	s.host = strings.TrimPrefix(receiver.URL, "http://")
	s.refusing = refusing(w)
	s.start()
	transport := &http.Transport{MaxIdleConnsPerHost: soakSenders}
	for range soakOrgs {
		org, key := w.join("soaked")
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			f := &soakFlow{method: method, manner: answers}
			if m, ok := strange[len(s.flows)]; ok {
				f.manner = m
			}
			f.post = w.webhookOf(s.process, key, w.defineFor(org, s.steps(f)))
			f.client.Transport = transport
			s.flows = append(s.flows, f)
		}
	}
	return s
}

// start has a process serve.
func (s *soak) start() {
	s.process = s.serve(s.limits, "FLOWLANE_LEASE=30s", "FLOWLANE_ALLOW_HOSTS="+s.host+","+s.refusing).ready(s.world)
	for _, f := range s.flows {
		f.to.Store(&s.process.url)
	}
}

// steps are those of a flow: its one call goes to a path that names flow and message.
func (s *soak) steps(f *soakFlow) string {
	host, timeout := s.host, ""
	switch f.manner {
	case dead:
		host = s.refusing
	case hangs:
		// So that what is under way at once stays within what a receiver of an organization gets.
		timeout = `"timeout_seconds":5,`
		if f.method == http.MethodPut {
			timeout = `"timeout_seconds":3,`
		}
	case answers, fails:
	}
	return fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",%s"retry":{"max_attempts":%d,"initial_seconds":0.5},
		"params":{"method":%q,"url":"http://%s/%d/{{ input.id }}","body":"{{ input }}"}}]}]`, timeout, soakAttempts,
		f.method, host, len(s.flows))
}

// receive is what the receivers do with a call.
func (s *soak) receive(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	flow, message, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	f, n := s.flows[must(strconv.Atoi(flow))], must(strconv.Atoi(message))
	s.mu.Lock()
	s.came[n]++
	if f.manner == answers {
		s.took = append(s.took, at.Sub(s.sent[n]))
	}
	s.mu.Unlock()
	if r.Method != f.method {
		s.Errorf("a %s came to a receiver of %s", r.Method, f.method)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	switch f.manner {
	case hangs:
		<-r.Context().Done()
	case fails:
		w.WriteHeader(http.StatusInternalServerError)
	case answers, dead:
		w.WriteHeader(http.StatusNoContent)
	}
}

// load sends messages for a time, to one flow after the other, and tells how it goes.
func (s *soak) load(lasts time.Duration) {
	s.Helper()
	numbers := make(chan int, int(lasts.Seconds()*float64(s.rate))+1)
	var group sync.WaitGroup
	for range soakSenders {
		group.Go(func() {
			for n := range numbers {
				s.deliver(n)
			}
		})
	}
	began, line, second, kill := time.Now(), time.NewTicker(soakLine), time.NewTicker(time.Second),
		time.NewTicker(killEvery)
	defer line.Stop()
	defer second.Stop()
	defer kill.Stop()
	for beat := time.NewTicker(10 * time.Millisecond); time.Since(began) < lasts; {
		select {
		case <-beat.C:
			s.number(numbers, int(min(time.Since(began), lasts).Seconds()*float64(s.rate)))
		case <-line.C:
			s.tell(time.Since(began))
			if s.mix != nil {
				s.mix.goOn()
			}
		case <-second.C:
			s.sizes = append(s.sizes, residentSize(s.T, s.process.Process.Pid))
		case <-kill.C:
			if s.deaths < s.kills {
				s.deaths++
				s.process.kill()
				s.start()
			}
		case <-s.process.ended:
			s.output.show(s.T)
			s.Fatal("the process has ended")
		}
	}
	close(numbers)
	group.Wait()
	s.tell(time.Since(began))
}

// number has the messages up to one sent.
func (s *soak) number(numbers chan<- int, upTo int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for now := time.Now(); len(s.sent) < upTo; {
		numbers <- len(s.sent)
		s.sent, s.came = append(s.sent, now), append(s.came, 0)
	}
}

// deliver sends a message until it is acknowledged.
func (s *soak) deliver(n int) {
	f := s.flows[n%len(s.flows)]
	for s.Context().Err() == nil {
		id, err := f.send(s.Context(), strconv.Itoa(n))
		switch {
		case err != nil:
			s.Error(err)
			return
		case id != "":
			s.acked.Add(1)
			return
		}
		s.cut.Add(1)
		pass(s.Context(), 20*time.Millisecond)
	}
}
