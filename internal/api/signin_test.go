package api_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/pgtest"
)

// refusal is a row of the audit log about somebody who was not let in.
type refusal struct {
	Action, Outcome, Reason, Address string
	AuthMethod                       string  `json:"auth_method"`
	KeyID                            *string `json:"api_key_id"`
	ResourceID                       *string `json:"resource_id"`
}

func (s *stack) refusals() (out []refusal) {
	s.t.Helper()
	var list struct{ Items []refusal }
	s.Do(http.MethodGet, "/account/audit-log?outcome=refused", nil).Want(http.StatusOK).Into(&list)
	return list.Items
}

// Who was not let in is in the audit log of the organization, if there is one, and counted; once a minute, and without
// the secret.
func TestSignIn_Refused(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := serveStack(t, false, func(c *app.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Operator = app.Operator{Listen: "127.0.0.1:0"}
	})
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := s.owner.Exec(context.WithoutCancel(t.Context()), sql, args...)
		require.NoError(t, err)
	}
	made := func(body string) (id, key string) {
		t.Helper()
		answer := s.Do(http.MethodPost, "/account/api-keys", body).Want(http.StatusCreated).JSON()
		return answer["id"].(string), answer["key"].(string)
	}
	refused := func(times int, key string) {
		t.Helper()
		for range times {
			s.As(key).Do(http.MethodGet, "/account/me", nil).Detail(http.StatusUnauthorized, "Authentication required")
		}
	}
	revoked, revokedKey := made(`{"name":"revoked"}`)
	expired, expiredKey := made(fmt.Sprintf(`{"name":"expired","expires_at":%q}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	gone, goneKey := made(`{"name":"gone"}`)
	s.Do(http.MethodDelete, "/account/api-keys/"+revoked, nil).Want(http.StatusNoContent)
	exec(`DELETE FROM flow.api_key WHERE id = $1`, gone)
	pgtest.MoveClock(t, s.owner, 2*time.Hour)
	refused(3, revokedKey)
	refused(3, expiredKey)
	refused(2, goneKey)
	refused(2, "hunter2-is-no-key")
	s.As("").Bearer("no.good.token").Do(http.MethodGet, "/account/me", nil).Want(http.StatusUnauthorized)

	want := func(reason, id string) refusal {
		return refusal{Action: "getMe", Outcome: "refused", Reason: reason, Address: "127.0.0.1", AuthMethod: "api_key",
			KeyID: &id}
	}
	assert.Equal(t, []refusal{want("expired_key", expired), want("revoked_key", revoked)}, s.refusals())

	otherKey := s.other.Key
	exec(`UPDATE flow.organization SET status = 'suspended' WHERE id = $1`, s.orgID(otherKey))
	s.eventuallyRefused(otherKey)
	assert.Equal(t, 1, s.number(`SELECT count(*) FROM flow.audit_log WHERE outcome = 'refused' AND reason = 'suspended' AND address = '127.0.0.1'`))
	assert.Len(t, s.refusals(), 2, "that of another organization is its own")

	for _, key := range []string{revokedKey, expiredKey, goneKey, otherKey} {
		assert.NotContains(t, log.String(), key)
		assert.Equal(t, 1, strings.Count(log.String(), "key_prefix="+key[:9]), "each is told once")
	}
	assert.NotContains(t, log.String(), "hunter2", "what is no key may be another secret")
	res, err := http.Get(s.app.OperatorURL() + "/metrics")
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	for reason, n := range map[string]int{"revoked_key": 3, "expired_key": 3, "unknown_key": 2, "malformed_key": 2,
		"bad_token": 1, "unknown_organization": 0} {
		assert.Contains(t, string(text), fmt.Sprintf("flowlane_sign_ins_refused_total{reason=%q} %d\n", reason, n))
	}
}

// eventuallyRefused waits until what is remembered of a key is over.
func (s *stack) eventuallyRefused(key string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.As(key).Do(http.MethodGet, "/account/me", nil).Status == http.StatusUnauthorized
	}, 10*time.Second, 50*time.Millisecond)
}
