package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/account"
	"flowlane/internal/pg"
)

const (
	// crowdOrgs have one record each, after crowdFirst others that warm up and do the rest.
	crowdOrgs  = 10_000
	crowdFirst = 100
	// hangOrgs have hangCalls calls each under way that are never answered, while another one makes aloneCalls, one
	// after the other.
	hangOrgs   = 63
	hangCalls  = 32
	aloneCalls = 1000
	// bigOrgs make bigCalls calls each at once, and to each comes an answer of bigAnswer bytes, the largest that is
	// read.
	bigOrgs   = 8
	bigCalls  = 25
	bigAnswer = 8 << 20
	// bigMost is what the service may take meanwhile, in MiB: its budget, and as much besides.
	bigMost = 512
)

// crowded measures what many organizations do to each other: 10,000 of them start one record each, each with a budget
// of its own; one makes calls while those of others hang; and all of 200 calls get large answers at once.
func crowded(ctx context.Context, e *env) ([]row, error) {
	own, err := e.apart(ctx)
	if err != nil {
		return nil, err
	}
	defer own.close()
	c, err := newCrowd(ctx, own)
	if err != nil {
		return nil, err
	}
	var out []row
	for _, measure := range []func(context.Context) (row, error){c.through, c.beside, c.large} {
		r, err := measure(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// crowd is a stack with many organizations, and their receivers: one answers, one hangs, one gives large answers.
type crowd struct {
	e            *env
	s            *service
	sink         *sink
	silent, full *receiver
	members      []member
	next         int
}

// member is an organization with a key.
type member struct {
	org uuid.UUID
	key string
}

func newCrowd(ctx context.Context, e *env) (*crowd, error) {
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	c := &crowd{e: e, s: s}
	if c.sink, err = newSink(ctx, e); err != nil {
		return nil, err
	}
	if c.silent, err = newReceiver(ctx, e, never); err != nil {
		return nil, err
	}
	if c.full, err = newReceiver(ctx, e, largeAnswers(bigOrgs*bigCalls, bigAnswer)); err != nil {
		return nil, err
	}
	if err := c.serve(ctx); err != nil {
		return nil, err
	}
	n := crowdOrgs
	if e.records > 0 {
		n = e.records
	}
	return c, c.join(ctx, crowdFirst+n)
}

// serve starts the service anew, with the limit of memory that the command serve sets itself.
func (c *crowd) serve(ctx context.Context) error {
	hosts := strings.Join([]string{c.sink.host, c.silent.host, c.full.host}, ",")
	return c.s.serve(ctx, c.e, hostVariable+"="+hosts, fmt.Sprintf("GOMEMLIMIT=%dMiB", bigMost))
}

// join makes organizations with a key each.
func (c *crowd) join(ctx context.Context, n int) error {
	accounts, err := c.s.accounts(ctx, c.e)
	if err != nil {
		return err
	}
	return pg.InTx(ctx, c.e.pool, func(ctx context.Context, tx pgx.Tx) error {
		for range n {
			org, err := account.CreateOrg(ctx, tx, "crowd")
			if err != nil {
				return err
			}
			key, _, err := accounts.CreateKey(ctx, tx, account.NewKey{OrgID: org.ID, Name: "crowd"})
			if err != nil {
				return err
			}
			c.members = append(c.members, member{org.ID, key})
		}
		return nil
	})
}

// define makes a definition of one call for each of these organizations: copies of one that the service has accepted.
func (c *crowd) define(ctx context.Context, settings, method, url string, members []member) ([]uuid.UUID, error) {
	first, err := c.s.define(ctx, fmt.Sprintf(
		`{"id":"t","action_id":"core__http__request",%s"params":{"method":%q,"url":%q}}`, settings, method, url))
	if err != nil {
		return nil, err
	}
	orgs, ids := make([]uuid.UUID, len(members)), make([]uuid.UUID, len(members))
	for i, m := range members {
		orgs[i], ids[i] = m.org, uuid.New()
	}
	_, err = c.e.pool.Exec(ctx, `WITH made AS (
			INSERT INTO flow.definition (id, org_id, name, status, created_by)
			SELECT u.id, u.org, d.name, d.status, d.created_by FROM flow.definition d, unnest($2::uuid[], $3::uuid[]) u (id, org) WHERE d.id = $1)
		INSERT INTO flow.definition_version (definition_id, version, org_id, doc, actions, created_by)
		SELECT u.id, 1, u.org, v.doc, v.actions, v.created_by FROM flow.definition_version v, unnest($2::uuid[], $3::uuid[]) u (id, org) WHERE v.definition_id = $1`,
		first, ids, orgs)
	return ids, err
}

// trigger starts the flow of each of these organizations so many times, as fast as that is answered; records are
// numbered from the number that is returned on.
func (c *crowd) trigger(ctx context.Context, defs []uuid.UUID, members []member,
	times, senders int) (from int, err error) {
	from = c.next
	n := len(members) * times
	c.next += n
	lines, err := (&hook{s: c.s}).connect(ctx, senders)
	if err != nil {
		return 0, err
	}
	defer lines.close()
	_, _, err = together(senders, n, func(who, i int) error {
		body := fmt.Appendf(nil, `{"input_data":{"i":%d}}`, from+i)
		head := fmt.Appendf(nil, "POST /v1/flows/definitions/%s/trigger HTTP/1.1\r\nHost: bench\r\n"+
			"X-API-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
			defs[i%len(members)], members[i%len(members)].key, len(body))
		return lines[who].post(head, body)
	})
	return from, err
}

// quiet waits until every batch is over.
func (c *crowd) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, arriveWithin)
	defer cancel()
	return c.e.quiet(ctx)
}

// through has each organization start one record.
func (c *crowd) through(ctx context.Context) (r row, err error) {
	defs, err := c.define(ctx, "", http.MethodPut, "http://"+c.sink.host+"/{{ input.i }}", c.members)
	if err != nil {
		return r, err
	}
	if _, err := c.trigger(ctx, defs[:crowdFirst], c.members[:crowdFirst], 10, smallSenders); err != nil {
		return r, err
	}
	if err := c.quiet(ctx); err != nil {
		return r, err
	}
	c.e.settle(ctx)
	members, n := c.members[crowdFirst:], len(c.members)-crowdFirst
	before, err := c.e.cost(ctx, c.s)
	if err != nil {
		return r, err
	}
	began := time.Now()
	from, err := c.trigger(ctx, defs[crowdFirst:], members, 1, smallSenders)
	if err != nil {
		return r, err
	}
	accepted := time.Since(began)
	came, err := c.sink.await(ctx, from, from+n)
	if err != nil {
		return r, err
	}
	took := slices.MaxFunc(came, time.Time.Compare).Sub(began)
	if err := c.quiet(ctx); err != nil {
		return r, err
	}
	after, err := c.e.cost(ctx, c.s)
	spent, each := after.minus(before), time.Duration(n)
	return row{what: fmt.Sprintf("%d organizations with a record each, through", n), ratio: float64(n) / took.Seconds(),
		unit: "a second",
		ours: fmt.Sprintf("accepted at %s, Postgres %s, service %s, log %.1f kB a record", perSecond(n, accepted,
			"requests"),
			(spent.postgres / each).Round(time.Microsecond), (spent.service / each).Round(time.Microsecond),
			float64(spent.wal)/float64(n)/1e3)}, err
}

// beside has one organization make calls alone, and again while calls of others hang.
func (c *crowd) beside(ctx context.Context) (r row, err error) {
	one, others := c.members[hangOrgs:hangOrgs+1], c.members[:hangOrgs]
	def, err := c.define(ctx, "", http.MethodPut, "http://"+c.sink.host+"/{{ input.i }}", one)
	if err != nil {
		return r, err
	}
	defs, err := c.define(ctx, `"timeout_seconds":900,"retry":{"max_attempts":1},`, http.MethodPut, "http://"+
		c.silent.host+"/", others)
	if err != nil {
		return r, err
	}
	alone, err := c.singles(ctx, def, one)
	if err != nil {
		return r, err
	}
	if _, err := c.trigger(ctx, defs, others, hangCalls, smallSenders); err != nil {
		return r, err
	}
	if err := c.silent.await(ctx, hangOrgs*hangCalls); err != nil {
		return r, err
	}
	among, err := c.singles(ctx, def, one)
	if err != nil {
		return r, err
	}
	_ = c.silent.server.Close() // none of them is made again
	text := func(took []time.Duration) string {
		return fmt.Sprintf("p50 %s, p99 %s", quantile(took, 0.5).Round(10*time.Microsecond),
			quantile(took, 0.99).Round(10*time.Microsecond))
	}
	return row{what: fmt.Sprintf("a call while %d of others hang, later than alone at p99", hangOrgs*hangCalls),
			ours: text(among), raw: "alone " + text(alone),
			ratio: (quantile(among, 0.99) - quantile(alone, 0.99)).Seconds() * 1e3, target: 100, most: true,
			unit: "ms"},
		c.quiet(ctx)
}

// singles starts one record after the other, each once the call of the one before has come, and returns how long that
// took.
func (c *crowd) singles(ctx context.Context, def []uuid.UUID, one []member) ([]time.Duration, error) {
	var took []time.Duration
	for range aloneCalls {
		began := time.Now()
		from, err := c.trigger(ctx, def, one, 1, 1)
		if err != nil {
			return nil, err
		}
		came, err := c.sink.await(ctx, from, from+1)
		if err != nil {
			return nil, err
		}
		took = append(took, came[0].Sub(began))
	}
	return took, nil
}

// large has calls get large answers, all at once, from a service that has done nothing else.
func (c *crowd) large(ctx context.Context) (r row, err error) {
	if err := c.serve(ctx); err != nil {
		return r, err
	}
	members := c.members[:bigOrgs]
	defs, err := c.define(ctx, `"timeout_seconds":300,"retry":{"max_attempts":1},`, http.MethodGet, "http://"+
		c.full.host+"/", members)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if _, err := c.trigger(ctx, defs, members, bigCalls, smallSenders); err != nil {
		return r, err
	}
	if err := c.full.await(ctx, bigOrgs*bigCalls); err != nil {
		return r, err
	}
	if err := c.quiet(ctx); err != nil {
		return r, err
	}
	took := time.Since(began)
	var done int
	err = c.e.pool.QueryRow(ctx, `SELECT count(*) FROM flow.batch b JOIN flow.batch_count c ON c.batch_id = b.id
		WHERE b.definition_id = ANY($1) AND c.status = 'completed'`, defs).Scan(&done)
	if err == nil && done != bigOrgs*bigCalls {
		err = fmt.Errorf("%d of %d calls with large answers are completed", done, bigOrgs*bigCalls)
	}
	if err != nil {
		return r, err
	}
	peak, err := peakMemory(c.s.pid)
	return row{what: fmt.Sprintf("%d answers of %d MiB at once, peak memory of the service", bigOrgs*bigCalls,
		bigAnswer>>20), ours: fmt.Sprintf("%.0f MiB, %s in all", peak, took.Round(10*time.Millisecond)),
		ratio: peak, target: bigMost, most: true, unit: "MiB"}, err
}
