package cells_test

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// TestRoute: a proxy sends what names a cell there: a key, the address of a webhook, an id, the host.
func TestRoute(t *testing.T) {
	t.Parallel()
	cells := []*cell{newCell(t, 0), newCell(t, 1)}
	p := newProxy(t, cells...)
	host := []string{"Host", commonHost}
	orgs := []org{cells[0].newOrg("Acme"), cells[1].newOrg("Bolt")}
	assert.Regexp(t, `^flow_[0-9A-Za-z]{49}$`, orgs[0].key)
	assert.Regexp(t, `^flow_c1_[0-9A-Za-z]{49}$`, orgs[1].key)

	hooks, definitions := make([]hook, 2), make([]string, 2)
	for i, o := range orgs {
		c := p.client(o.key)
		me := c.Do(http.MethodGet, "/account/me", nil, host...).Want(http.StatusOK).JSON()
		assert.Equal(t, o.id, me["organization"].(map[string]any)["id"], "by the key")

		hooks[i], definitions[i] = newHook(t, c)
		last := []string{"000", "001"}[i]
		for _, id := range []string{o.id, definitions[i], hooks[i].id} {
			assert.Equal(t, last, id[len(id)-3:])
		}
		hooks[i].post(t, c, commonHost, "m").Want(http.StatusAccepted)
		assert.Equal(t, 1, cells[i].count("flow.webhook_delivery"), "by the address of the webhook")
	}
	for i := range cells {
		// A stream token names no cell, and comes with an id.
		var token struct{ Token string }
		p.client(orgs[i].key).Do(http.MethodPost, "/account/auth/stream-token", "{}", host...).Want(http.StatusCreated).Into(&token)
		batch := cells[i].text("SELECT id::text FROM flow.batch")
		said := p.client("").Do(http.MethodGet, "/flows/batches/"+batch+"/stream?token="+token.Token, nil, host...)
		said.Want(http.StatusOK)

		own := []string{"Host", cells[i].name() + "." + commonHost}
		other := []string{"Host", cells[1-i].name() + "." + commonHost}
		p.client(orgs[i].key).Do(http.MethodGet, "/account/me", nil, own...).Want(http.StatusOK)
		p.client(orgs[i].key).Do(http.MethodGet, "/account/me", nil, other...).Want(http.StatusUnauthorized)
	}
	p.client("flow_c9_"+strings.Repeat("A", 49)).Do(http.MethodGet, "/account/me", nil, host...).
		Want(http.StatusUnauthorized)
	p.client("").Do(http.MethodGet, "/catalog/platforms", nil, host...).Want(http.StatusOK)
}

// TestRoute_Moved: what comes for an organization that has gone to another cell goes there, and only to a cell that the
// proxy knows.
func TestRoute_Moved(t *testing.T) {
	t.Parallel()
	old, now := newCell(t, 0), newCell(t, 1)
	p := newProxy(t, old, now)
	gone, there := old.newOrg("Acme"), now.newOrg("Acme")

	// What a move leaves behind.
	left := func(to string, names ...[]byte) {
		_, err := old.pool.Exec(t.Context(), `INSERT INTO flow.move (org_id, to_url, was_status, moved_at)
			VALUES ($1, $2, 'active', now()) ON CONFLICT (org_id) DO UPDATE SET to_url = excluded.to_url`, gone.id, to)
		require.NoError(t, err)
		for _, name := range names {
			_, err = old.pool.Exec(t.Context(), "INSERT INTO flow.move_name VALUES ($1, $2)", name, gone.id)
			require.NoError(t, err)
		}
	}
	h, _ := newHook(t, p.client(there.key))
	id, err := hex.DecodeString(h.id)
	require.NoError(t, err)
	before := "cell0." + commonHost // that of the old cell, which the sender was told
	h.post(t, p.client(""), before, "m").Want(http.StatusNotFound)
	old.exec("UPDATE flow.organization SET status = 'moved' WHERE id = $1", gone.id)
	var hash []byte
	require.NoError(t, old.pool.QueryRow(t.Context(), "SELECT hash FROM flow.api_key WHERE org_id = $1", gone.id).Scan(&hash))

	left("https://cell1."+commonHost, id, hash)
	h.post(t, p.client(""), before, "m").Want(http.StatusAccepted)
	assert.Equal(t, 1, now.count("flow.webhook_delivery"), "its sender has noticed nothing")
	said := apitest.NewClient(t, old.url, gone.key)
	said.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	led := said.Do(http.MethodGet, "/flows/batches?limit=7", nil).Want(http.StatusTemporaryRedirect)
	assert.Equal(t, "https://cell1."+commonHost+"/v1/flows/batches?limit=7", led.Header.Get("Location"))
	assert.Equal(t, "moved", led.JSON()["code"])

	left("https://elsewhere.example.net")
	unchecked := p.client("")
	unchecked.HTTP.Transport = nil // the answer is one of nginx
	led = h.post(t, unchecked, before, "n").Want(http.StatusTemporaryRedirect)
	assert.Equal(t, "https://elsewhere.example.net/v1"+h.path, led.Header.Get("Location"), "what is not in the list is not followed")
	assert.Equal(t, 1, now.count("flow.webhook_delivery"))
}

func (c *cell) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.pool.Exec(c.t.Context(), sql, args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cell) text(sql string) (text string) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), sql).Scan(&text); err != nil {
		c.t.Fatal(err)
	}
	return text
}

func (c *cell) count(table string) (n int) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}
