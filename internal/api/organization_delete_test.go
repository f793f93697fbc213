package api_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/pgtest"
)

// mentions counts the rows that name something, by table.
func (s *stack) mentions(what string) map[string]int {
	s.t.Helper()
	var tables []string
	s.scan(`SELECT array_agg(table_schema || '.' || table_name ORDER BY 1) FROM information_schema.tables
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'ops') AND table_type = 'BASE TABLE'`, &tables)
	require.Greater(s.t, len(tables), 50)
	rows := map[string]int{}
	for _, table := range tables {
		if n := s.count(table+" t WHERE strpos(t::text, $1) > 0", what); n > 0 {
			rows[table] = n
		}
	}
	return rows
}

// outlasts tells of a table that may name an organization that is deleted: its audit log and what that hangs on, the
// receipt, what was counted of accounts that others use, too, and the job that has deleted it, for a day.
func outlasts(table string, _ int) bool {
	switch table {
	case "flow.audit_log", "flow.organization", "flow.retention", "flow.deletion", "flow.ledger", "river.river_job":
		return true
	}
	return false
}

// TestOrganization_Delete: an organization that has something of everything, and work under way, is deleted: no table
// names it or anything that it made but its audit log, the receipt, and the row that both hang on; those go when the
// audit log may. Others have all they had.
func TestOrganization_Delete(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for _, operation := range changingOperations(t) {
		if prepare, ok := auditedCalls[operation]; ok && !strings.HasPrefix(operation, "delete") &&
			!strings.HasPrefix(operation, "revoke") {
			call := prepare(s)
			s.Do(call.method, call.path, call.body).Want(call.status)
		}
	}
	org, others := s.orgID(s.Key), s.orgID(s.other.Key)
	s.restart(true)
	s.await(s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(3000)))))
	s.await(s.trigger(s.define(transformSteps), oneRecord))
	// An account that it has named, whose limits were read, and a host that it alone has called.
	named := s.made("/tenants", `{"platform_id":"dialer","label":"Sandbox"}`)
	s.Do(http.MethodPost, "/credentials", dialerCredential("88/ann", "tenancy_id", named)).Want(http.StatusCreated)
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+named+"/refresh-limits", nil).Want(http.StatusOK)
	require.Positive(t, s.count("flow.domain_limit WHERE tenancy_id = $1", named))
	s.await(s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",`+
		`"params":{"url":"http://127.0.0.1:9/only","method":"GET"}}]}]`), oneRecord))
	require.Equal(t, 1, s.count("flow.budget WHERE domain LIKE 'host:%:127.0.0.1:9'"))
	release := s.hold("/calls")
	under := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED","params":{"number":"+420111111111","campaign":"c"}}]}]`), oneRecord)
	s.until(under, func(b map[string]any) bool { return counted(b)["started"] == 1 })
	def := s.other.Do(http.MethodPost, "/flows/definitions", `{"name":"f","status":"active","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	theirs := s.other.Do(http.MethodPost, "/flows/definitions/"+def+"/trigger",
		oneRecord).Want(http.StatusOK).JSON()["batch_id"].(string)
	s.eventually(func() bool {
		return s.other.Do(http.MethodGet, "/flows/batches/"+theirs, nil).JSON()["status"] == "completed"
	})
	before, had := s.mentions(others), s.mentions(org)
	require.Greater(t, len(had), 35, "it has something of nearly everything")

	deletions, err := app.Deletions(s.owner, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, deletions.Begin(t.Context(), uuid.MustParse(org)))
	pgtest.MoveClock(t, s.owner, 11*time.Second)
	s.eventually(func() bool { return s.count("flow.batch WHERE org_id = $1", org) == 1 })
	assert.Equal(t, 1, s.count("flow.call WHERE org_id = $1 AND state = 'intent'", org),
		"a call under way is waited for")
	release()
	s.eventually(func() bool { return s.count("flow.deletion WHERE ended_at IS NOT NULL") == 1 })
	s.eventually(func() bool { return s.count("flow.due WHERE key = $1", org) == 0 })
	left := s.mentions(org)
	for _, table := range []string{"flow.audit_log", "flow.deletion", "flow.organization", "flow.retention"} {
		assert.Contains(t, left, table)
	}
	maps.DeleteFunc(left, outlasts)
	assert.Empty(t, left)
	assert.Zero(t, s.count("flow.budget WHERE domain LIKE 'host:%:127.0.0.1:9'"))
	for _, what := range []string{s.credential, under, needle, "Acme", named} {
		rows := s.mentions(what)
		maps.DeleteFunc(rows, outlasts)
		assert.Empty(t, rows, what)
	}
	assert.Equal(t, before, s.mentions(others))
	s.Do(http.MethodGet, "/account/me", nil).Want(http.StatusUnauthorized)
	var text []byte
	s.scan("SELECT rows FROM flow.deletion", &text)
	var rows map[string]int
	require.NoError(t, json.Unmarshal(text, &rows))
	for _, table := range []string{"batch", "page", "fragment", "credential", "definition", "record_set", "secret"} {
		assert.Positive(t, rows[table], table)
	}
	assert.Equal(t, []int{had["flow.definition"], had["flow.record_set"]}, []int{rows["definition"],
		rows["record_set"]})
	require.NoError(t, deletions.Begin(t.Context(), uuid.MustParse(org)), "once more")
	s.eventually(func() bool { return s.count("flow.due WHERE key = $1", org) == 0 })

	s.aDayLater(31)
	s.aDayLater(1)
	left = s.mentions(org)
	delete(left, "river.river_job")
	assert.Equal(t, map[string]int{"flow.deletion": 1}, left)
}
