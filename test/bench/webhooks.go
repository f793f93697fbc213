package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
	"flowlane/internal/trigger/webhook"
)

const (
	// webhookMessages is how many small messages are sent at a time; of large ones it is a tenth.
	webhookMessages = 6000
	// webhookTime is when a measurement of webhooks is not repeated any more.
	webhookTime = 20 * time.Second
	// spareConns are those of a server that raw inserts leave alone.
	spareConns = 30
	// meanwhileRate is how many messages a second come while a large batch runs.
	meanwhileRate = 200
	// lookEvery is how often it is looked whether that runs.
	lookEvery = 50 * time.Millisecond

	insertRaw = "INSERT INTO raw_message (body) VALUES ($1)"
)

// webhooks measures how long a signed message takes over HTTP to its 202, and how many there are a second, next to raw
// inserts of one row with the same body, each with a commit of its own: over a pool as pgx opens it, of four
// connections or one for each processor, and over as many connections as there are senders. The service starts no flows
// meanwhile. What senders do is left out as far as it can be: messages are signed before the clock starts, and the
// client does little else than write and read, on one processor at most. Last comes how long a message takes while
// batches of a million records run; those messages do start flows.
func webhooks(ctx context.Context, e *env) ([]row, error) {
	own, err := e.apart(ctx)
	if err != nil {
		return nil, err
	}
	defer own.close()
	h, err := newHook(ctx, own)
	if err != nil {
		return nil, err
	}
	busy, err := h.meanwhile(ctx, own)
	if err != nil {
		return nil, err
	}
	if err := h.s.serve(ctx, own, idleVariable+"=1"); err != nil {
		return nil, err
	}
	var out []row
	for _, c := range []struct {
		senders, size, messages int
		target                  float64
	}{{32, 1 << 10, webhookMessages, 1}, {256, 1 << 10, webhookMessages, 1.4}, {32, 100 << 10, webhookMessages / 10,
		1}} {
		if e.records > 0 {
			c.messages = e.records
		}
		rows, err := h.measure(ctx, own, c.senders, c.size, c.messages, c.target)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return append(out, busy), nil
}

// hook is a webhook, and a place for raw inserts.
type hook struct {
	s            *service
	path, secret string
	sent         atomic.Int64
}

func newHook(ctx context.Context, e *env) (*hook, error) {
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	def, err := s.define(ctx, `{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`)
	if err != nil {
		return nil, err
	}
	var made struct {
		Secret string `json:"signing_secret"`
		URL    string `json:"receive_url"`
	}
	body := fmt.Appendf(nil, `{"definition_id":%q,"description":"bench","rate_limit":1000000}`, def)
	if err := s.call(ctx, http.MethodPost, "/flows/webhooks", body, &made); err != nil {
		return nil, err
	}
	_, err = e.pool.Exec(ctx, `CREATE TABLE raw_message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT now(), body bytea);
		ALTER TABLE raw_message ALTER COLUMN body SET STORAGE EXTERNAL`)
	return &hook{s: s, path: "/v1" + made.URL, secret: made.Secret}, err
}

// inserts are raw inserts of one row by so many connections.
type inserts struct {
	spells
	conns int
	pool  *pgxpool.Pool
}

func (h *hook) inserts(ctx context.Context, e *env, conns int) (*inserts, error) {
	pool, err := pg.Open(ctx, e.dsn, pg.Options{MaxConns: conns})
	return &inserts{conns: conns, pool: pool}, err
}

func (r *inserts) text(n int) string {
	return fmt.Sprintf("%d insert %s", r.conns, perSecond(n, median(r.all), "rows")+r.each())
}

func (h *hook) measure(ctx context.Context, e *env, senders, size, messages int, target float64) ([]row, error) {
	var most int
	if err := e.pool.QueryRow(ctx, "SELECT current_setting('max_connections')::int").Scan(&most); err != nil {
		return nil, err
	}
	few, err := h.inserts(ctx, e, max(4, runtime.NumCPU()))
	if err != nil {
		return nil, err
	}
	defer few.pool.Close()
	many, err := h.inserts(ctx, e, min(senders, most-spareConns))
	if err != nil {
		return nil, err
	}
	defer many.pool.Close()
	body := textBody(size)
	lines, err := h.connect(ctx, senders)
	if err != nil {
		return nil, err
	}
	defer lines.close()
	var ours spells
	for began := time.Now(); len(ours.all) == 0 || len(ours.all) < e.repeats && time.Since(began) < webhookTime; {
		for _, r := range []*inserts{few, many} {
			e.settle(ctx)
			insert := func(int, int) error {
				_, err := r.pool.Exec(ctx, insertRaw, body)
				return err
			}
			if err := r.add(ctx, e, h.s, r.conns, messages, insert); err != nil {
				return nil, err
			}
		}
		heads := make([][]byte, messages)
		for i := range heads {
			if heads[i], err = h.head(body); err != nil {
				return nil, err
			}
		}
		err := onOne(func() error {
			return ours.add(ctx, e, h.s, senders, messages, func(who, i int) error {
				return lines[who].post(heads[i],
					body)
			})
		})
		if err != nil {
			return nil, err
		}
	}
	what, rate := fmt.Sprintf("webhook, %d senders, %d KiB", senders, size>>10), perSecond(messages, median(ours.all),
		"messages")+ours.each()
	ratio := func(r *inserts) float64 { return median(r.all).Seconds() / median(ours.all).Seconds() }
	rows := []row{{what: what + ", acknowledged", ours: rate, raw: few.text(messages), ratio: ratio(few),
		target: target},
		{what: what + ", next to as many inserts at once", ours: rate, raw: many.text(messages), ratio: ratio(many)}}
	if senders == 32 {
		rows = append(rows, latency(what+", p99 to its 202", ours.took, 25))
	}
	return rows, nil
}

// onOne has the senders share a processor: in life they are on other machines, and do not wake each other's threads
// here.
func onOne(do func() error) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return do()
}

// spells are measurements of the same: how long each took, how long each thing done took, and what all of them cost.
type spells struct {
	all, took []time.Duration
	cost      cost
}

// add has so many at once do something n times in all.
func (s *spells) add(ctx context.Context, e *env, from *service, many, n int, do func(who, i int) error) error {
	before, err := e.cost(ctx, from)
	if err != nil {
		return err
	}
	all, took, err := together(many, n, do)
	if err != nil {
		return err
	}
	after, err := e.cost(ctx, from)
	if err != nil {
		return err
	}
	spent := after.minus(before)
	s.cost.service, s.cost.postgres, s.cost.wal = s.cost.service+spent.service, s.cost.postgres+spent.postgres,
		s.cost.wal+spent.wal
	s.all, s.took = append(s.all, all), append(s.took, took...)
	return nil
}

// each is what one thing cost, as text.
func (s *spells) each() string {
	n := time.Duration(len(s.took))
	service := ""
	if one := (s.cost.service / n).Round(time.Microsecond); one > 0 { // raw inserts take none
		service = fmt.Sprintf("service %s, ", one)
	}
	return fmt.Sprintf(" (%sPostgres %s, WAL %.1f kB each)", service, (s.cost.postgres / n).Round(time.Microsecond),
		float64(s.cost.wal)/float64(n)/1e3)
}

func latency(what string, times []time.Duration, target float64) row {
	p50, p99 := quantile(times, 0.5), quantile(times, 0.99)
	return row{what: what, ours: fmt.Sprintf("p50 %s, p99 %s", p50.Round(10*time.Microsecond),
		p99.Round(10*time.Microsecond)),
		ratio: p99.Seconds() * 1e3, target: target, most: true, unit: "ms"}
}

// meanwhile measures messages that come while batches run, one after the other, next to raw inserts of one row at the
// same time.
func (h *hook) meanwhile(ctx context.Context, e *env) (row, error) {
	n := e.records
	if n == 0 {
		n = runRecords
	}
	bodies := chunkBodies(sampleRows(n))
	body := textBody(1 << 10)
	const senders = 32
	lines, err := h.connect(ctx, senders)
	if err != nil {
		return row{}, err
	}
	defer lines.close()
	var times, theirs []time.Duration
	for i := range (e.repeats + 1) / 2 {
		done := make(chan error, 1)
		go func() {
			_, err := h.s.runBatch(ctx, e, fmt.Sprintf(uploadTask, fmt.Sprintf("meanwhile%d", i), fiveFields), bodies,
				n)
			done <- err
		}()
		took, inserted, err := h.paced(ctx, e, lines, body, done)
		if err != nil {
			return row{}, err
		}
		times, theirs = append(times, took...), append(theirs, inserted...)
	}
	out := latency(fmt.Sprintf("webhook, %d/s while %d records run, p99 of %d to 202", meanwhileRate, n, len(times)),
		times, 50)
	out.raw = fmt.Sprintf("insert p50 %s, p99 %s", quantile(theirs, 0.5).Round(10*time.Microsecond),
		quantile(theirs, 0.99).Round(10*time.Microsecond))
	return out, nil
}

// paced has messages sent until done, evenly, whatever the answers take, and returns how long those took that came
// while a large batch ran, and how long raw inserts took meanwhile, of which there is one for every ten messages.
func (h *hook) paced(ctx context.Context, e *env, lines lines, body []byte,
	done chan error) (took, inserted []time.Duration, err error) {
	sent := newTurns(len(lines), func(who int) error {
		head, err := h.head(body)
		if err != nil {
			return err
		}
		return lines[who].post(head, body)
	})
	raw := newTurns(1, func(int) error {
		_, err := e.pool.Exec(ctx, insertRaw, body)
		return err
	})
	running, stop := h.watch(ctx, e)
	began, n := time.Now(), 0
	for i, over := 0, false; !over; i++ {
		at := began.Add(time.Duration(i) * time.Second / meanwhileRate)
		select {
		case err = <-done:
			over = true
		case <-time.After(time.Until(at)):
			if !running.Load() {
				continue
			}
			sent.at <- at
			if n++; n%10 == 0 {
				raw.at <- at
			}
		}
	}
	err = errors.Join(err, stop())
	took, errSent := sent.end()
	inserted, errRaw := raw.end()
	if err == nil && len(inserted) == 0 {
		err = errors.New("the batch was over before the first messages")
	}
	return took, inserted, errors.Join(err, errSent, errRaw)
}

// watch says whether a large batch runs, until stop, beside what goes on: a database that answers late would else keep
// messages from being sent, and being late.
func (h *hook) watch(ctx context.Context, e *env) (running *atomic.Bool, stop func() error) {
	running = new(atomic.Bool)
	ended, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			now, err := h.s.running(ctx, e)
			running.Store(now)
			if err != nil {
				failed <- err
				return
			}
			select {
			case <-ended:
				failed <- nil
				return
			case <-time.After(lookEvery):
			}
		}
	}()
	return running, func() error {
		close(ended)
		return <-failed
	}
}

// turns are things done at given times by several at once; each takes from its time on, also where it has to wait for
// somebody.
type turns struct {
	at    chan time.Time
	group sync.WaitGroup
	mu    sync.Mutex
	took  []time.Duration
	err   error
}

func newTurns(many int, do func(who int) error) *turns {
	t := &turns{at: make(chan time.Time, 1000)}
	for who := range many {
		t.group.Go(func() {
			for at := range t.at {
				err := do(who)
				t.mu.Lock()
				t.took, t.err = append(t.took, time.Since(at)), errors.Join(t.err, err)
				t.mu.Unlock()
			}
		})
	}
	return t
}

// end waits for what is under way, and returns how long each took.
func (t *turns) end() ([]time.Duration, error) {
	close(t.at)
	t.group.Wait()
	return t.took, t.err
}

// running says whether a batch of many records runs.
func (s *service) running(ctx context.Context, e *env) (yes bool, err error) {
	err = e.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM flow.batch_count WHERE status IN ('queued', "+
		"'running') AND record_count > 1 AND org_id = $1)", s.org).Scan(&yes)
	return yes, err
}

// textBody is a JSON text of a size: rows as customers have them.
func textBody(size int) []byte {
	rows := bytes.Join(sampleRows(size/(rowBytes+10)), []byte(","))
	body := fmt.Appendf(nil, `{"rows":[%s],"text":""}`, rows)
	text := bytes.Repeat([]byte("x"), size-len(body))
	return append(append(body[:len(body)-2:len(body)-2], text...), `"}`...)
}

// together has so many at once do something n times in all, and returns how long all of it took, and each.
func together(many, n int, do func(who, i int) error) (all time.Duration, took []time.Duration, err error) {
	took = make([]time.Duration, n)
	errs := make([]error, many)
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for who := range many {
		group.Go(func() {
			for {
				at := int(next.Add(1) - 1)
				if at >= n || errs[who] != nil {
					return
				}
				one := time.Now()
				errs[who] = do(who, at)
				took[at] = time.Since(one)
			}
		})
	}
	group.Wait()
	return time.Since(began), took, errors.Join(errs...)
}

// head is what comes before the body of a message of its own: the request line and the headers.
func (h *hook) head(body []byte) ([]byte, error) {
	id, now := "msg_"+strconv.FormatInt(h.sent.Add(1), 10), time.Now()
	signature, err := webhook.Sign(h.secret, id, now, body)
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nWebhook-Id: %s\r\nWebhook-Timestamp: %d\r\nWebhook-Signature: %s\r\n\r\n",
		h.path, len(body), id, now.Unix(), signature), err
}

// line is the connection of a sender.
type line struct {
	conn net.Conn
	in   *bufio.Reader
}

type lines []*line

func (h *hook) connect(ctx context.Context, n int) (lines, error) {
	u, err := url.Parse(h.s.url)
	if err != nil {
		return nil, err
	}
	var all lines
	for range n {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, &line{conn, bufio.NewReader(conn)})
	}
	return all, nil
}

func (l lines) close() {
	for _, one := range l {
		_ = one.conn.Close()
	}
}

// post sends one message and reads its answer.
func (l *line) post(head, body []byte) error {
	if _, err := (&net.Buffers{head, body}).WriteTo(l.conn); err != nil {
		return err
	}
	status, err := l.in.ReadString('\n')
	if err != nil {
		return err
	}
	if err := l.skip(); err != nil {
		return err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 20") {
		return fmt.Errorf("a request was answered %s", strings.TrimSpace(status))
	}
	return nil
}

// skip reads the rest of an answer, whose length is given.
func (l *line) skip() error {
	length := -1
	for {
		field, err := l.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(field), []byte(":"))
		switch {
		case len(name) == 0 && length < 0:
			return errors.New("an answer says nothing of its length")
		case len(name) == 0:
			_, err := l.in.Discard(length)
			return err
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
}
