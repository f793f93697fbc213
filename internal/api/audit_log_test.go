package api_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/pgtest"
)

func (l auditLog) actions() string {
	names := make([]string, len(l.Items))
	for i, e := range l.Items {
		names[i] = e.Action
	}
	return strings.Join(names, " ")
}

func TestAuditLog_Filters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	read := func(query string) (log auditLog) {
		t.Helper()
		b.Do("GET", "/account/audit-log?"+query, nil).Want(200).Into(&log)
		assert.Equal(t, len(log.Items), log.Total, query)
		return log
	}
	key := b.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(201).JSON()["id"].(string)
	b.Do("POST", "/data/record-sets", nil).Want(201)
	pgtest.MoveClock(t, b.pool, 24*time.Hour)
	b.Do("DELETE", "/account/api-keys/"+key, nil).Want(204)

	const all = "revokeApiKey createRecordSet createApiKey"
	tomorrow := time.Now().Add(12 * time.Hour).UTC().Format(time.RFC3339)
	latest := read("").Items[0].CreatedAt.Format(time.RFC3339Nano)
	for query, want := range map[string]string{
		"":                                         all,
		"action=createRecordSet":                   "createRecordSet",
		"action=createrecordset":                   "",
		"resource_type=api_key":                    "revokeApiKey createApiKey",
		"resource_id=" + key:                       "revokeApiKey createApiKey",
		"resource_id=" + key + "x":                 "",
		"resource_id=" + strings.ToUpper(key):      "",
		"account_id=" + b.acme.AccountID.String():  all,
		"account_id=" + b.other.AccountID.String(): "",
		"account_id=nonsense":                      "",
		"outcome=succeeded":                        all,
		"outcome=denied":                           "",
		"from=" + tomorrow:                         "revokeApiKey",
		"to=" + tomorrow:                           "createRecordSet createApiKey",
		"from=" + latest:                           "revokeApiKey",
		"to=" + latest:                             "createRecordSet createApiKey",
		"from=" + tomorrow + "&to=" + tomorrow:     "",
		"action=createApiKey&resource_id=" + key:   "createApiKey",
	} {
		assert.Equal(t, want, read(query).actions(), query)
	}

	var other auditLog
	b.As(b.other.Key).Do("GET", "/account/audit-log?resource_id="+key, nil).Want(200).Into(&other)
	assert.Zero(t, other.Total, "another organization sees nothing")
	b.As("").Do("GET", "/account/audit-log", nil).Detail(401, "Authentication required")
	b.Do("GET", "/account/audit-log?limit=201&from=today&outcome=maybe&to=1", nil).
		Invalid("query.from datetime_parsing", "query.limit less_than_equal", "query.outcome enum",
			"query.to datetime_parsing")
	b.Do("GET", "/account/audit-log?action=%00", nil).Invalid("query.action value_error")
}

func TestAuditLog_Paging(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 7 {
		b.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(201)
	}
	// Several entries with one time: the place of a page is more than a time.
	_, err := b.pool.Exec(t.Context(),
		`INSERT INTO flow.audit_log (id, org_id, created_at, account_id, action, resource_type, resource_name, outcome, request_id)
		SELECT gen_random_uuid(), $1, '2020-01-01', $2, 'createBatch', 'batch', n::text, 'succeeded', '' FROM generate_series(1, 8) n`,
		b.acme.ID, b.acme.AccountID)
	require.NoError(t, err)
	seen := map[string]bool{}
	var last time.Time
	pages := 0
	for cursor := ""; ; pages++ {
		var page auditLog
		b.Do("GET", "/account/audit-log?limit=4"+cursor, nil).Want(200).Into(&page)
		assert.Equal(t, []int{15, 4, 0}, []int{page.Total, page.Limit, page.Skip})
		for _, e := range page.Items {
			assert.False(t, seen[e.ID], "%s comes twice", e.ID)
			assert.True(t, last.IsZero() || !e.CreatedAt.After(last), "newest first")
			seen[e.ID], last = true, e.CreatedAt
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	assert.Len(t, seen, 15)
	assert.Equal(t, 3, pages)

	newest, oldest := b.auditIDs(""), b.auditIDs("order=asc")
	assert.Equal(t, newest, b.auditIDs("order=desc"))
	slices.Reverse(oldest)
	assert.Equal(t, newest, oldest, "the other way round, entries of one time too")
	until := url.QueryEscape(last.Add(time.Microsecond).Format(time.RFC3339Nano))
	assert.Equal(t, newest[7:], b.auditIDs("to="+until))
	assert.Len(t, b.auditIDs("order=asc&to="+until), 8)
	assert.Len(t, b.auditIDs("order=asc&from="+until), 7)

	var page auditLog
	b.Do("GET", "/account/audit-log?limit=4", nil).Want(200).Into(&page)
	cursor := *page.NextCursor
	for _, query := range []string{"cursor=x", "order=asc&cursor=" + cursor, "cursor=" + cursor[1:],
		"action=createApiKey&cursor=" + cursor,
		"from=2020-01-01T00:00:00Z&cursor=" + cursor, fmt.Sprintf("outcome=denied&cursor=%s", cursor)} {
		b.Do("GET", "/account/audit-log?"+query, nil).Detail(400, "Invalid cursor")
	}
	b.As(b.other.Key).Do("GET", "/account/audit-log?cursor="+cursor, nil).Detail(400, "Invalid cursor")
}

// auditIDs are the entries of the audit log, from all pages.
func (b *bundle) auditIDs(query string) (ids []string) {
	for cursor := ""; ; {
		var page auditLog
		b.Do("GET", "/account/audit-log?limit=4&"+query+cursor, nil).Want(200).Into(&page)
		for _, e := range page.Items {
			ids = append(ids, e.ID)
		}
		if page.NextCursor == nil {
			return ids
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

func TestAuditLog_FailedCallsLeaveNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Do("POST", "/account/api-keys", `{}`).Want(422)
	b.Do("POST", "/account/api-keys", `{"name":"x","expires_at":"2020-01-01T00:00:00Z"}`).Want(422)
	b.Do("DELETE", "/account/api-keys/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11", nil).Want(404)
	b.As("nonsense").Do("POST", "/account/api-keys", `{"name":"x"}`).Want(401)
	b.Do("GET", "/account/me", nil).Want(200)
	var log auditLog
	b.Do("GET", "/account/audit-log", nil).Want(200).Into(&log)
	assert.Zero(t, log.Total)
	assert.Empty(t, log.Items)
}

// TestAuditLog_Again: a call that finds its work done is a call all the same.
func TestAuditLog_Again(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(201).JSON()["id"].(string)
	set := b.Do("POST", "/data/record-sets", nil).Want(201).JSON()["id"].(string)
	for range 2 {
		b.Do("DELETE", "/account/api-keys/"+id, nil).Want(204)
		b.Do("POST", "/data/record-sets/"+set+"/records", `{"chunk_index":0,"records":[{}]}`).Want(200)
	}
	for range 2 {
		b.Do("POST", "/data/record-sets/"+set+"/seal", `{"expected_count":1}`).Want(200)
	}
	var log auditLog
	b.Do("GET", "/account/audit-log", nil).Want(200).Into(&log)
	assert.Equal(t, "sealRecordSet sealRecordSet appendRecords revokeApiKey appendRecords revokeApiKey "+
		"createRecordSet createApiKey", log.actions())
}

func TestAuditLog_IsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Do("POST", "/account/api-keys", `{"name":"x"}`).Want(201)
	refuses := func(sql string) {
		t.Helper()
		_, err := b.pool.Exec(t.Context(), sql)
		assert.ErrorContains(t, err, "never changed", sql)
	}
	refuses(`DELETE FROM flow.audit_log`)
	refuses(`UPDATE flow.audit_log SET action = 'nothing'`)
	pgtest.MoveClock(t, b.pool, 29*24*time.Hour)
	refuses(`DELETE FROM flow.audit_log`)
	pgtest.MoveClock(t, b.pool, 2*24*time.Hour)
	refuses(`UPDATE flow.audit_log SET action = 'nothing'`)
	_, err := b.pool.Exec(t.Context(), `DELETE FROM flow.audit_log`)
	require.NoError(t, err, "the retention may be as short as 30 days")
}
