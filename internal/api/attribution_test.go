package api_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
)

// changeSteps change one record of the platform for each record.
const changeSteps = `[{"id":"s","tasks":[{"id":"m","action_id":"dialer__api__modify","credential_id":%q,"params":{"list":"l","key":"{{ input.id }}","fields":{"n":1}}}]}]`

// modified runs a batch of n single calls with a credential, to its end.
func modified(s *stack, c *apitest.Client, credential string, n int) (definition string) {
	s.t.Helper()
	definition = c.Do(http.MethodPost, "/flows/definitions", fmt.Sprintf(`{"name":"m","status":"active","steps":%s}`,
		fmt.Sprintf(changeSteps, credential))).
		Want(http.StatusCreated).JSON()["id"].(string)
	batch := c.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", `{"records":[`+strings.Join(rowsOf(n),
		",")+`]}`).
		Want(http.StatusOK).JSON()["batch_id"].(string)
	s.eventually(func() bool {
		return c.Do(http.MethodGet, "/flows/batches/"+batch, nil).Want(http.StatusOK).JSON()["status"] == "completed"
	})
	return definition
}

// share is an entry of the attribution.
type share struct {
	CredentialID   *string `json:"credential_id"`
	CredentialName *string `json:"credential_name"`
	Calls          int     `json:"calls"`
	Pct            float64 `json:"pct_of_used"`
}

// attribution reads the shares of all windows, and holds them against what must always be true of them.
func attribution(t *testing.T, c *apitest.Client, tenancy string) map[string]map[string][]share {
	t.Helper()
	var a struct {
		Buckets map[string]struct {
			Windows map[string][]share `json:"windows"`
		} `json:"buckets"`
	}
	c.Do(http.MethodGet, "/platforms/dialer/domains/"+tenancy+"/attribution", nil).Want(http.StatusOK).Into(&a)
	head := c.Do(http.MethodGet, "/platforms/dialer/domains/"+tenancy+"/headroom",
		nil).Want(http.StatusOK).JSON()["buckets"].(map[string]any)
	out := map[string]map[string][]share{}
	require.Len(t, a.Buckets, 5)
	for name, b := range a.Buckets {
		out[name] = b.Windows
		require.Len(t, b.Windows, 3)
		for window, shares := range b.Windows {
			tenths, calls := 0, 0
			for i, s := range shares {
				tenths += int(math.Round(s.Pct * 10))
				calls += s.Calls
				assert.Equal(t, i == len(shares)-1, s.CredentialID == nil, "%s %s", name, window)
			}
			assert.Equal(t, 1000, tenths, "%s %s: %v", name, window, shares)
			if window == "86400" {
				assert.InDelta(t, inside(head, name, "windows", window, "used"), calls, 0, name)
			}
		}
	}
	return out
}

// settled waits until the provider's counters were read late enough to hold all calls: until then use is put too high.
func (s *stack) settled(bucket string, used int) {
	s.t.Helper()
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	s.eventually(func() bool {
		head := s.get("/platforms/dialer/domains/" + s.tenancy + "/headroom")
		return inside(head, "buckets", bucket, "windows", "86400", "used") == float64(used)
	})
}

func TestDomain_Attribution(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide})
	second := s.Do(http.MethodPost, "/credentials",
		`{"name":"second","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"acme","password":"x"}}`).
		Want(http.StatusCreated).JSON()["id"].(string)
	foreign := s.other.Do(http.MethodPost, "/credentials",
		`{"name":"theirs","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"acme","password":"x"}}`).
		Want(http.StatusCreated).JSON()["id"].(string)
	nothing := attribution(t, s.Client, s.tenancy)["modify"]["86400"]
	assert.Equal(t, []share{{Pct: 100}}, nothing, "nobody spent anything")

	modified(s, s.Client, s.credential, 5)
	flow := modified(s, s.Client, second, 2)
	modified(s, s.other, foreign, 3)
	s.sim.Spend("acme", "modify", 1)
	s.settled("modify", 11)
	name := func(n string) *string { return &n }
	day := attribution(t, s.Client, s.tenancy)["modify"]["86400"]
	// of 11
	want := []share{{&s.credential, name("sim"), 5, 45.4}, {&second, name("second"), 2, 18.2}, {nil, nil, 4, 36.4}}
	assert.Equal(t, want, day, "the other organization and other clients have no name here")
	assert.Equal(t, []share{{&foreign, name("theirs"), 3, 27.3}, {nil, nil, 8, 72.7}}, attribution(t, s.other,
		s.tenancy)["modify"]["86400"])

	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"archived"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/credentials/"+second, nil).Want(http.StatusNoContent)
	want[1].CredentialName = nil
	assert.Equal(t, want, attribution(t, s.Client, s.tenancy)["modify"]["86400"],
		"what a deleted credential spent stays its own")
}

func TestDomain_UsageHistory(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: wide})
	path := "/platforms/dialer/domains/" + s.tenancy + "/usage-history"
	empty := s.get(path)
	assert.Empty(t, empty["items"])
	assert.Nil(t, empty["total"])
	modified(s, s.Client, s.credential, 5)
	s.sim.Spend("acme", "modify", 2)
	s.settled("modify", 7)
	rows := s.get(path + "?bucket=modify&window=86400")["items"].([]any)
	require.NotEmpty(t, rows)
	used, observed := 0.0, 0.0
	for _, r := range rows { // two around midnight
		row := r.(map[string]any)
		used += row["used"].(float64)
		if row["observed"] != nil {
			observed += row["observed"].(float64)
			assert.InDelta(t, row["observed"].(float64)-row["used"].(float64), row["drift"], 0)
		}
		assert.InDelta(t, wide["*"][86400], row["cap"], 0)
	}
	assert.InDelta(t, 7, used, 0)
	assert.InDelta(t, 7, observed, 0)

	// A month of days, and one that is forgotten.
	_, err := s.owner.Exec(t.Context(),
		`INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, own)
		SELECT $1, 'dial', 86400, date_trunc('day', now(), 'UTC') - make_interval(days => d), date_trunc('day', now(), 'UTC') - make_interval(days => d - 1), d
		FROM generate_series(1, 40) d`, s.tenancy)
	require.NoError(t, err)
	dial := s.pages(path+"?bucket=dial&window=86400", 7)
	require.Len(t, dial, 1+29, "today and what is not forgotten")
	for i, r := range dial[1:] {
		assert.InDelta(t, i+1, field[float64](t, r, "used"), 0, "newest first")
		assert.InDelta(t, wide["*"][86400], field[float64](t, r, "cap"), 0, "of a row without one, today's")
	}
	all := s.pages(path, 3)
	assert.Greater(t, len(all), len(dial)+2)
	assert.Empty(t, s.get(path + "?bucket=nope")["items"])
	s.Do(http.MethodGet, path+"?window=61", nil).Invalid("query.window enum")
	assert.Equal(t, []any{100.0, 0.0}, []any{empty["limit"], empty["skip"]}, "by cursor alone, as the contract says")
	days := path + "?bucket=dial&window=86400"
	assert.Equal(t, s.get(days)["items"], s.get(days + "&skip=1")["items"])
	s.Do(http.MethodGet, path+"?limit=501", nil).Invalid("query.limit less_than_equal")
	s.other.Do(http.MethodGet, path, nil).Detail(http.StatusNotFound, "Domain not found")
}
