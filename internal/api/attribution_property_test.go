package api_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/quota"
	"flowlane/test/apitest"
)

// spender is a credential of one of two organizations for one of two accounts. The name of a deleted one is nil.
type spender struct {
	client  *apitest.Client
	id      string
	tenancy string
	name    *string
}

func (s *stack) spenders() (out []*spender) {
	s.t.Helper()
	for _, c := range []*apitest.Client{s.Client, s.other} {
		for i := range 6 {
			name, account := fmt.Sprint("c", i), []string{"acme", "second"}[i%2]
			made := c.Do(http.MethodPost, "/credentials",
				fmt.Sprintf(`{"name":%q,"platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":%q,"password":"x"}}`, name, account)).
				Want(http.StatusCreated).JSON()
			out = append(out, &spender{client: c, id: made["id"].(string), tenancy: made["tenancy_id"].(string),
				name: &name})
		}
	}
	return out
}

// spent is what the windows of an account hold, by bucket, length and credential; what others spent is under the empty
// one.
type spent map[string]map[int]map[string]int

// spend writes random calls of the account's credentials and of other clients into its current windows.
func (s *stack) spend(r *rand.Rand, tenancy string, by []*spender) spent {
	s.t.Helper()
	now, out := time.Now(), spent{}
	for _, bucket := range []string{"dial", "modify", "query", "upload", "upload_async"} {
		out[bucket] = map[int]map[string]int{}
		for _, seconds := range []int{60, 3600, 86400} {
			calls, own, most := map[string]int{}, 0, []int{1, 3, 1000}[r.IntN(3)]
			for _, c := range by {
				if c.tenancy != tenancy {
					continue
				}
				if n := r.IntN(most + 1); n > 0 && r.IntN(3) > 0 {
					calls[c.id] = n
					own += n
				}
			}
			foreign := 0
			if r.IntN(2) == 0 {
				foreign = r.IntN(most + 1)
			}
			start, end := quota.WindowAt(now, seconds, time.UTC)
			_, err := s.owner.Exec(s.t.Context(),
				`INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, own, foreign_spend, by_credential)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (domain, bucket, window_seconds, starts_at)
				DO UPDATE SET own = excluded.own, foreign_spend = excluded.foreign_spend, by_credential = excluded.by_credential`,
				tenancy, bucket, seconds, start, end, own, foreign, calls)
			require.NoError(s.t, err)
			calls[""] = foreign
			out[bucket][seconds] = calls
		}
	}
	return out
}

// expected are the shares that one organization should see of a window, and how many calls there were.
func expected(client *apitest.Client, by []*spender, calls map[string]int) (want map[string]share, total int) {
	rest := share{Calls: calls[""]}
	want, total = map[string]share{}, calls[""]
	for _, c := range by {
		n := calls[c.id]
		total += n
		switch {
		case n == 0:
		case c.client == client:
			want[c.id] = share{&c.id, c.name, n, 0}
		default:
			rest.Calls += n
		}
	}
	want[""] = rest
	return want, total
}

// TestProperty_Attribution: whoever spent what of an account, all shares of each window add up to 100, each is right to
// a tenth, and a deleted credential keeps its own.
func TestProperty_Attribution(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	by, compared, deleted := s.spenders(), 0, 0
	for round := range 40 {
		if c := by[r.IntN(len(by))]; round%5 == 4 && c.name != nil {
			c.client.Do(http.MethodDelete, "/credentials/"+c.id, nil).Want(http.StatusNoContent)
			c.name = nil
		}
		tenancy, client := by[r.IntN(2)].tenancy, []*apitest.Client{s.Client, s.other}[r.IntN(2)]
		began := time.Now()
		written := s.spend(r, tenancy, by)
		seen := attribution(t, client, tenancy)
		for bucket, windows := range written {
			for seconds, calls := range windows {
				start, _ := quota.WindowAt(began, seconds, time.UTC)
				if end, _ := quota.WindowAt(time.Now(), seconds, time.UTC); !end.Equal(start) {
					continue // a new window has begun meanwhile
				}
				compared++
				want, total := expected(client, by, calls)
				got := seen[bucket][strconv.Itoa(seconds)]
				require.Len(t, got, len(want), "%s %d: %v", bucket, seconds, got)
				for i, g := range got {
					id := ""
					if g.CredentialID != nil {
						id = *g.CredentialID
					}
					w := want[id]
					if w.Pct = g.Pct; id != "" && w.CredentialName == nil {
						deleted++
					}
					assert.Equal(t, w, g, "%s %d", bucket, seconds)
					if total == 0 {
						assert.InDelta(t, 100, g.Pct, 0, "nobody spent anything")
						continue
					}
					assert.Less(t, math.Abs(g.Pct*float64(total)-float64(100*g.Calls)), 0.1*float64(total)+1e-6,
						"%v of %d", g, total)
					assert.True(t, i == 0 || id == "" || got[i-1].Calls >= g.Calls, "by how much they spent")
				}
			}
		}
	}
	assert.Greater(t, compared, 300)
	assert.Positive(t, deleted)
}
