package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// smallStarts is how many starts of one record are measured at a time, after as many that only warm up.
	smallStarts = 4000
	// smallSenders is how many send them at once.
	smallSenders = 32
	// smallFor is how long a steady stream of starts goes on.
	smallFor = 15 * time.Second
	// arriveWithin is how long the last call may take to arrive.
	arriveWithin = 2 * time.Minute
)

// small measures starts of one record each, whose one PUT goes to one host: triggers and signed webhooks, through to
// the receiver, next to raw inserts of one row a transaction over four connections. Load, receiver, service and
// Postgres share the processors.
func small(ctx context.Context, e *env) ([]row, error) {
	own, err := e.apart(ctx)
	if err != nil {
		return nil, err
	}
	defer own.close()
	b, err := newSmallBench(ctx, own)
	if err != nil {
		return nil, err
	}
	defer b.lines.close()
	n := smallStarts
	if e.records > 0 {
		n = e.records
	}
	var out []row
	for _, measure := range []func(context.Context, int) ([]row, error){b.through, b.steady, b.idle} {
		rows, err := measure(ctx, n)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// smallBench is a stack with a flow that makes one call a record, a webhook that starts it, and its receiver.
type smallBench struct {
	e       *env
	h       *hook
	def     string
	sink    *sink
	lines   lines
	inserts *inserts
	next    int
}

func newSmallBench(ctx context.Context, e *env) (*smallBench, error) {
	k, err := newSink(ctx, e)
	if err != nil {
		return nil, err
	}
	h, err := newHook(ctx, e)
	if err != nil {
		return nil, err
	}
	if err := h.s.serve(ctx, e, hostVariable+"="+k.host); err != nil {
		return nil, err
	}
	b := &smallBench{e: e, h: h, sink: k}
	task := fmt.Sprintf(`{"id":"t","action_id":"core__http__request","params":{"method":"PUT","url":"http://%s/{{ input.i }}","body":"{{ input }}"}}`, k.host)
	if b.def, err = h.s.define(ctx, task); err != nil {
		return nil, err
	}
	if err := h.aim(ctx, b.def); err != nil {
		return nil, err
	}
	if b.inserts, err = h.inserts(ctx, e, 4); err != nil {
		return nil, err
	}
	e.closers = append(e.closers, b.inserts.pool.Close)
	b.lines, err = h.connect(ctx, smallSenders)
	return b, err
}

// aim makes the webhook one that starts another flow.
func (h *hook) aim(ctx context.Context, def string) error {
	var made struct {
		Secret string `json:"signing_secret"`
		URL    string `json:"receive_url"`
	}
	body := fmt.Appendf(nil, `{"definition_id":%q,"description":"bench","rate_limit":1000000}`, def)
	if err := h.s.call(ctx, http.MethodPost, "/flows/webhooks", body, &made); err != nil {
		return err
	}
	h.path, h.secret = "/v1"+made.URL, made.Secret
	return nil
}

// sink is an HTTP server that notes when each record first came in, and how often; records are numbered in the path.
type sink struct {
	host  string
	mu    sync.Mutex
	came  map[int]time.Time
	twice int
	// missing are how many of those from one number to before another have not come; news tells when it falls to none.
	from, to, missing int
	news              chan struct{}
}

func newSink(ctx context.Context, e *env) (*sink, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &sink{host: listener.Addr().String(), came: map[int]time.Time{}, news: make(chan struct{}, 1)}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: k}
	go func() { _ = server.Serve(listener) }()
	e.closers = append(e.closers, func() { _ = server.Close() })
	return k, nil
}

func (k *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	if i, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); err == nil && k.note(i, at) {
		select {
		case k.news <- struct{}{}:
		default:
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// note notes that a record came, and tells whether whoever waits should know.
func (k *sink) note(i int, at time.Time) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, seen := k.came[i]; seen {
		k.twice++
		return true
	}
	k.came[i] = at
	if i >= k.from && i < k.to {
		k.missing--
	}
	return k.missing == 0
}

// await waits until all numbers from one to before another have come, and returns when each did. It sleeps meanwhile:
// what it took would be missing to those whom the bench measures.
func (k *sink) await(ctx context.Context, from, to int) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, arriveWithin)
	defer cancel()
	for {
		out, twice := k.times(from, to)
		switch {
		case twice > 0:
			return nil, fmt.Errorf("%d calls arrived twice", twice)
		case len(out) == to-from:
			return out, nil
		}
		select {
		case <-k.news:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d calls arrived: %w", len(out), to-from, ctx.Err())
		}
	}
}

// times returns when those from one number to before another came that did, and watches for the others.
func (k *sink) times(from, to int) (out []time.Time, twice int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := from; i < to; i++ {
		if at, ok := k.came[i]; ok {
			out = append(out, at)
		}
	}
	k.from, k.to, k.missing = from, to, to-from-len(out)
	return out, k.twice
}

// start is one way to start the flow for a record.
type start struct {
	name   string
	target float64
	least  float64
	// logged and kept are the most kB of log, and that may be kept; 0 for no such target.
	logged, kept float64
	// request returns the head and the body for a number.
	request func(i int) (head, body []byte, err error)
}

func (b *smallBench) ways() []start {
	return []start{
		{"single-record triggers", 0.3, 2000, 4, 1.5, func(i int) (head, body []byte, err error) {
			return b.trigger(i, "")
		}},
		// What an SDK sends, so that a trigger which gets no answer can be sent again.
		{"single-record triggers with keys", 0.3, 2000, 0, 0, func(i int) (head, body []byte, err error) {
			return b.trigger(i, "Idempotency-Key: "+uuid.NewString()+"\r\n")
		}},
		{"single-record webhooks", 0.45, 3000, 4, 1.5, b.message},
	}
}

func (b *smallBench) trigger(i int, header string) (head, body []byte, err error) {
	body = fmt.Appendf(nil, `{"input_data":{"i":%d,"text":"one of many small starts"}}`, i)
	return fmt.Appendf(nil, "POST /v1/flows/definitions/%s/trigger HTTP/1.1\r\nHost: bench\r\nX-API-Key: %s\r\n%s"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", b.def, b.h.s.key, header, len(body)), body, nil
}

func (b *smallBench) message(i int) (head, body []byte, err error) {
	body = fmt.Appendf(nil, `{"i":%d,"text":"one of many small starts"}`, i)
	head, err = b.h.head(body)
	return head, body, err
}

// burst sends n starts as fast as they are answered, and returns how long it took to the last answer and to the last
// arrival.
func (b *smallBench) burst(ctx context.Context, w *start, n int) (accepted, through time.Duration, err error) {
	from := b.next
	b.next += n
	heads, bodies := make([][]byte, n), make([][]byte, n)
	for i := range n {
		if heads[i], bodies[i], err = w.request(from + i); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	accepted, _, err = together(len(b.lines), n, func(who, i int) error {
		return b.lines[who].post(heads[i],
			bodies[i])
	})
	if err != nil {
		return 0, 0, err
	}
	came, err := b.sink.await(ctx, from, from+n)
	if err != nil {
		return 0, 0, err
	}
	return accepted, slices.MaxFunc(came, time.Time.Compare).Sub(began), b.e.quiet(ctx)
}

// quiet waits until every batch is over.
func (e *env) quiet(ctx context.Context) error {
	for {
		var open bool
		err := e.pool.QueryRow(ctx,
			"SELECT EXISTS (SELECT FROM flow.batch_count WHERE status IN ('queued', 'running'))").Scan(&open)
		if err != nil || !open {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *smallBench) through(ctx context.Context, n int) ([]row, error) {
	var out []row
	for _, w := range b.ways() {
		if _, _, err := b.burst(ctx, &w, n); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		b.e.settle(ctx)
		raw := textBody(1 << 10)
		if err := b.inserts.add(ctx, b.e, b.h.s, 4, n, func(int, int) error {
			_, err := b.inserts.pool.Exec(ctx, insertRaw, raw)
			return err
		}); err != nil {
			return nil, err
		}
		b.e.settle(ctx)
		kept := map[string]float64{}
		if err := b.keeps(ctx, kept, -1/float64(n)); err != nil {
			return nil, err
		}
		before, err := b.e.cost(ctx, b.h.s)
		if err != nil {
			return nil, err
		}
		accepted, through, err := b.burst(ctx, &w, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		after, err := b.e.cost(ctx, b.h.s)
		if err != nil {
			return nil, err
		}
		if err := b.keeps(ctx, kept, 1/float64(n)); err != nil {
			return nil, err
		}
		insert := b.inserts.all[len(b.inserts.all)-1]
		spent, each := after.minus(before), time.Duration(n)
		cpu := spentEach(spent, n)
		rate := float64(n) / through.Seconds()
		out = append(out,
			row{what: w.name + " through, beside raw inserts", ours: perSecond(n, through, "records"), raw: "insert " +
				perSecond(n, insert, "rows"),
				ratio: insert.Seconds() / through.Seconds(), target: w.target},
			row{what: w.name + " through", ours: cpu, ratio: rate, target: w.least, unit: "a second"},
			row{what: w.name + " accepted", ours: perSecond(n, accepted, "requests"),
				ratio: insert.Seconds() / accepted.Seconds()},
			row{what: w.name + ", log", ours: fmt.Sprintf("%.1f kB", float64(spent.wal)/float64(n)/1e3),
				ratio: float64(spent.wal) / float64(n) / 1e3, target: w.logged, most: w.logged > 0, unit: "kB"},
			row{what: w.name + ", kept", ratio: total(kept) / 1e3, target: w.kept, most: w.kept > 0, unit: "kB"},
			row{what: w.name + ", kept of its call", ratio: kept["exchange"], unit: "bytes"},
			row{what: w.name + ", Postgres", ours: cpu, ratio: float64((spent.postgres / each).Microseconds()) / 1e3,
				target: 0.3, most: true, unit: "ms"},
			row{what: w.name + ", service", ours: cpu, ratio: float64((spent.service / each).Microseconds()) / 1e3,
				target: 0.2, most: true, unit: "ms"})
	}
	return out, nil
}

// spentEach says what each of n records took of the processors.
func spentEach(spent cost, n int) string {
	each := time.Duration(n)
	return fmt.Sprintf("Postgres %s, service %s a record", (spent.postgres / each).Round(time.Microsecond),
		(spent.service / each).Round(time.Microsecond))
}

// steady measures the time from sending a webhook message to the arrival of its call, at even rates.
func (b *smallBench) steady(ctx context.Context, _ int) ([]row, error) {
	var out []row
	for _, at := range []struct {
		rate     int
		p50, p99 float64
	}{{200, 0, 0}, {500, 10, 40}, {1000, 20, 80}} {
		if _, err := b.stream(ctx, at.rate, smallFor/5); err != nil {
			return nil, fmt.Errorf("webhooks at %d/s: %w", at.rate, err)
		}
		before, err := b.e.cost(ctx, b.h.s)
		if err != nil {
			return nil, err
		}
		raw := b.insertBeside(ctx)
		took, err := b.stream(ctx, at.rate, smallFor)
		inserts, rawErr := raw()
		after, costErr := b.e.cost(ctx, b.h.s)
		if err := errors.Join(err, rawErr, costErr); err != nil {
			return nil, fmt.Errorf("webhooks at %d/s: %w", at.rate, err)
		}
		what := fmt.Sprintf("webhook to its receiver at %d/s", at.rate)
		p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
		text := fmt.Sprintf("p50 %s, p99 %s, last %s", p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond),
			slices.Max(took).Round(time.Millisecond))
		spent := after.minus(before)
		disk := fmt.Sprintf("insert p50 %s, p99 %s", ms(quantile(inserts, 0.5)), ms(quantile(inserts, 0.99)))
		out = append(out, row{what: what + ", p50", ours: text, raw: disk, ratio: p50.Seconds() * 1e3, target: at.p50,
			most: at.p50 > 0, unit: "ms"},
			row{what: what + ", p99", ours: text, raw: disk, ratio: p99.Seconds() * 1e3, target: at.p99,
				most: at.p99 > 0, unit: "ms"},
			row{what: what + ", processor", ours: spentEach(spent, len(took)), unit: "ms",
				ratio: (spent.postgres + spent.service).Seconds() * 1e3 / float64(len(took))})
	}
	return out, nil
}

// insertEvery is how often a raw row is inserted beside a stream.
const insertEvery = 20 * time.Millisecond

// insertBeside inserts raw rows, each with a commit of its own, until what it returns is called, which says how long
// each took: no message can be faster than the disk, which stalls for everybody.
func (b *smallBench) insertBeside(ctx context.Context) (stop func() ([]time.Duration, error)) {
	ended, done := make(chan struct{}), make(chan error, 1)
	var took []time.Duration
	go func() {
		tick := time.NewTicker(insertEvery)
		defer tick.Stop()
		body := textBody(1 << 10)
		for {
			select {
			case <-ended:
				done <- nil
				return
			case <-tick.C:
			}
			began := time.Now()
			if _, err := b.inserts.pool.Exec(ctx, insertRaw, body); err != nil {
				done <- err
				return
			}
			took = append(took, time.Since(began))
		}
	}()
	return func() ([]time.Duration, error) {
		close(ended)
		err := <-done
		return took, err
	}
}

// stream sends messages at even times, and returns how long after its time each arrived, be it that nothing could be
// sent then: the slowest moments would else be missing.
func (b *smallBench) stream(ctx context.Context, rate int, lasts time.Duration) ([]time.Duration, error) {
	n, from := int(lasts.Seconds()*float64(rate)), b.next
	b.next += n
	sent := make([]time.Time, n)
	tries := make(chan int, n)
	var group sync.WaitGroup
	errs := make([]error, len(b.lines))
	for who := range b.lines {
		group.Go(func() {
			for i := range tries {
				head, body, err := b.message(from + i)
				if errs[who] = errors.Join(errs[who], err, b.lines[who].post(head, body)); errs[who] != nil {
					return
				}
			}
		})
	}
	began := time.Now()
	for i := range n {
		sent[i] = began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		sleep(ctx, time.Until(sent[i]))
		tries <- i
	}
	close(tries)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if _, err := b.sink.await(ctx, from, from+n); err != nil {
		return nil, err
	}
	took := make([]time.Duration, n)
	b.sink.mu.Lock()
	for i := range n {
		took[i] = b.sink.came[from+i].Sub(sent[i])
	}
	b.sink.mu.Unlock()
	return took, b.e.quiet(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
