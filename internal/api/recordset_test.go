package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/recordset"
	"flowlane/internal/request"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// uploads is a service with two organizations.
type uploads struct {
	*apitest.Client
	pool  *pgxpool.Pool
	org   uuid.UUID
	other *apitest.Client
}

// unplanned is a Waker for tests in which nothing expires.
type unplanned struct{}

func (unplanned) Wake(context.Context, pgx.Tx, string, string, time.Time) error { return nil }

func serveUploads(t *testing.T) uploads {
	t.Helper()
	pool := pgtest.New(t)
	accounts := apitest.Accounts(t, pool)
	entries, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	handler, err := api.New(api.Deps{
		Pool: pool, Accounts: accounts, Catalog: entries, RecordSets: recordset.New(pool, unplanned{}, nil),
		Answers: apitest.Answers(t, pool), Limits: request.NewLimits(pool, time.Now, slog.New(slog.DiscardHandler)),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	own := apitest.NewTenant(t, pool, accounts, "own")
	client := apitest.Serve(t, handler, own.Key)
	return uploads{client, pool, own.ID, client.As(apitest.NewTenant(t, pool, accounts, "other").Key)}
}

// create makes a set and returns its path.
func (u uploads) create(t *testing.T, chunkSize int) string {
	t.Helper()
	m := u.Do(http.MethodPost, "/data/record-sets", map[string]any{"chunk_size": chunkSize}).Want(
		http.StatusCreated).JSON()
	return "/data/record-sets/" + m["id"].(string)
}

// send uploads rows, each the text of an object, as a chunk.
func (u uploads) send(set string, index int, rows ...string) apitest.Response {
	return u.Do(http.MethodPost, set+"/records", fmt.Sprintf(`{"chunk_index":%d,"records":[%s]}`, index,
		strings.Join(rows, ",")))
}

func (u uploads) seal(set string, count int) apitest.Response {
	return u.Do(http.MethodPost, set+"/seal", map[string]any{"expected_count": count})
}

// requireUntouched checks that a set has this many records and no trace of more.
func (u uploads) requireUntouched(t *testing.T, set string, records int) {
	t.Helper()
	m := u.Do(http.MethodGet, set, nil).Want(http.StatusOK).JSON()
	assert.EqualValues(t, records, m["received_count"])
	var stored, chunked int
	require.NoError(t, u.pool.QueryRow(t.Context(),
		`SELECT coalesce((SELECT sum(rows) FROM flow.page WHERE set_id = $1), 0),
		coalesce((SELECT sum(records) FROM flow.record_chunk WHERE record_set_id = $1), 0)`, m["id"]).Scan(&stored,
		&chunked))
	assert.Equal(t, records, stored)
	assert.Equal(t, records, chunked)
}

func TestRecordSet_Life(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	metadata := `{"z":1.50,"a":[12.0e+03,{"k":"ü"}]}`
	created := u.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":2,"metadata":`+metadata+
		`}`).Want(http.StatusCreated)
	assert.Contains(t, string(created.Body), `"metadata":`+metadata, "metadata comes back as it was sent")
	m := created.JSON()
	assert.Equal(t, "open", m["status"])
	assert.Nil(t, m["content_hash"])
	set := "/data/record-sets/" + m["id"].(string)

	chunk := u.send(set, 1, `{"n":3}`).Want(http.StatusOK).JSON()
	assert.Equal(t, map[string]any{"record_set_id": m["id"], "chunk_index": 1.0, "records_received": 1.0,
		"inserted": 1.0, "received_count": 1.0, "replay": false}, chunk)
	u.send(set, 0, `{"n":1}`, `{"n":2}`).Want(http.StatusOK)
	again := u.send(set, 0, ` { "n" : 1.0 } `, `{"n":2}`).Want(http.StatusOK).JSON()
	assert.Equal(t, map[string]any{"record_set_id": m["id"], "chunk_index": 0.0, "records_received": 2.0,
		"inserted": 0.0, "received_count": 3.0, "replay": true}, again)

	sealed := u.seal(set, 3).Want(http.StatusOK).JSON()
	assert.Equal(t, "sealed", sealed["status"])
	assert.EqualValues(t, 3, sealed["expected_count"])
	want := recordset.ContentHash([]recordset.Digest{
		recordset.HashRows([][]byte{[]byte(`{"n":1}`), []byte(`{"n":2}`)}),
		recordset.HashRows([][]byte{[]byte(`{"n":3}`)}),
	})
	assert.Equal(t, want, sealed["content_hash"])
	assert.Equal(t, sealed, u.seal(set, 3).Want(http.StatusOK).JSON())
	assert.Equal(t, sealed, u.Do(http.MethodGet, set, nil).Want(http.StatusOK).JSON())

	u.Do(http.MethodDelete, set, nil).Want(http.StatusNoContent)
	u.Do(http.MethodGet, set, nil).Detail(http.StatusNotFound, "Record set not found")
}

func TestRecordSet_Defaults(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	for _, body := range []any{nil, "{}"} {
		m := u.Do(http.MethodPost, "/data/record-sets", body).Want(http.StatusCreated).JSON()
		assert.EqualValues(t, recordset.MaxChunkSize, m["chunk_size"])
		assert.Equal(t, map[string]any{}, m["metadata"])
	}
	for body, entry := range map[string]string{
		`{"chunk_size":0}`:            "body.chunk_size greater_than_equal",
		`{"chunk_size":50001}`:        "body.chunk_size less_than_equal",
		`{"chunk_size":"many"}`:       "body.chunk_size int_type",
		`{"chunk_sice":5}`:            "body.chunk_sice extra_forbidden",
		`{"metadata":[]}`:             "body.metadata object_type",
		`{"metadata":{"a":"\u0000"}}`: "body.metadata.a value_error",
	} {
		u.Do(http.MethodPost, "/data/record-sets", body).Invalid(entry)
	}
}

func TestRecordSet_List(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	var ids []string
	for range 3 {
		ids = append(ids, strings.TrimPrefix(u.create(t, 5), "/data/record-sets/"))
	}
	u.seal("/data/record-sets/"+ids[1], 0).Want(http.StatusOK)
	var page struct {
		Items      []struct{ ID string }
		Total      int
		NextCursor *string `json:"next_cursor"`
	}
	u.Do(http.MethodGet, "/data/record-sets?limit=2", nil).Want(http.StatusOK).Into(&page)
	require.NotNil(t, page.NextCursor)
	assert.Equal(t, 3, page.Total)
	assert.Equal(t, ids[0], page.Items[0].ID)
	cursor := *page.NextCursor
	u.Do(http.MethodGet, "/data/record-sets?limit=2&cursor="+cursor, nil).Want(http.StatusOK).Into(&page)
	require.Len(t, page.Items, 1)
	assert.Equal(t, ids[2], page.Items[0].ID)
	assert.Nil(t, page.NextCursor)
	u.Do(http.MethodGet, "/data/record-sets?status=sealed", nil).Want(http.StatusOK).Into(&page)
	require.Len(t, page.Items, 1)
	assert.Equal(t, 1, page.Total)
	u.Do(http.MethodGet, "/data/record-sets?status=sealed&cursor="+cursor, nil).Detail(http.StatusBadRequest,
		"Invalid cursor")
	u.Do(http.MethodGet, "/data/record-sets?status=lost", nil).Invalid("query.status enum")
	u.other.Do(http.MethodGet, "/data/record-sets", nil).Want(http.StatusOK).Into(&page)
	assert.Empty(t, page.Items)
}

func TestRecordChunk_Refused(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	set := u.create(t, 20)
	u.send(set, 0, `{"first":true}`).Want(http.StatusOK)
	rows := func(row string) string {
		return `{"chunk_index":1,"records":[` + strings.Repeat("{},", 17) + row + `]}`
	}
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct {
		name, body string
		entries    []string
	}{
		{"NUL escape", rows(`{"name":"a\u0000"}`), []string{"body.records.17.name value_error"}},
		{"NUL raw", rows("{\"name\":\"a\x00\"}"), []string{"body.records.17.name value_error"}},
		{"NUL in two places", rows(`{"name":"\u0000","more":[{"x":"\u0000"}]}`),
			[]string{"body.records.17.name value_error", "body.records.17.more.0.x value_error"}},
		{"invalid UTF-8", rows("{\"name\":\"\xc3\x28\"}"), []string{"body json_invalid"}},
		{"100 levels", rows(`{"name":` + deep + `}`), []string{"body json_invalid"}},
		{"malformed", rows(`{"name":}`), []string{"body json_invalid"}},
		{"cut", rows(`{"name":"x"`), []string{"body json_invalid"}},
		{"no object", rows(`"row"`), []string{"body.records.17 object_type"}},
		{"too many", rows(`{},{},{},{}`), []string{"body.records too_long"}},
		{"none", `{"chunk_index":1,"records":[]}`, []string{"body.records too_short"}},
		{"negative", `{"chunk_index":-1,"records":[{}]}`, []string{"body.chunk_index greater_than_equal"}},
		{"several", `{"chunk_index":"1","rows":[]}`, []string{"body.chunk_index int_type", "body.rows extra_forbidden",
			"body.records missing"}},
		{"empty", ``, []string{"body missing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u.Do(http.MethodPost, set+"/records", c.body).Invalid(c.entries...)
		})
	}
	u.requireUntouched(t, set, 1)
}

func TestRecordChunk_TooLarge(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	set := u.create(t, 20)
	body := func(size int) string {
		const frame = `{"chunk_index":0,"records":[{"a":""}]}`
		return strings.Replace(frame, `""`, `"`+strings.Repeat("x", size-len(frame))+`"`, 1)
	}
	const detail = "Request body exceeds 16777216 bytes"
	u.Do(http.MethodPost, set+"/records", body(recordset.MaxBodyBytes+1)).Detail(http.StatusRequestEntityTooLarge,
		detail)
	u.requireUntouched(t, set, 0)
	u.Do(http.MethodPost, set+"/records", body(recordset.MaxBodyBytes)).Want(http.StatusOK)
	u.requireUntouched(t, set, 1)
}

func TestRecordChunk_DigitsAreKept(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	set := u.create(t, 20)
	row := `{"n":` + strings.Repeat("1234567890", 40) + `,"e":1.0E+007, "s" : "\u00e9"}`
	u.send(set, 0, row).Want(http.StatusOK)
	u.seal(set, 1).Want(http.StatusOK)
	pages, err := recordset.Pages{}.Read(t.Context(), u.pool,
		uuid.MustParse(strings.TrimPrefix(set, "/data/record-sets/")), []int64{0})
	require.NoError(t, err)
	got, err := pages[0].Rows()
	require.NoError(t, err)
	assert.Equal(t, row, string(got[0]))
}

func TestRecordChunk_Conflicts(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	set := u.create(t, 2)
	u.send(set, 0, `{"n":1}`).Want(http.StatusOK)
	u.send(set, 0, `{"n":2}`).Detail(http.StatusConflict, "Chunk 0 was already received with other records")
	u.send(set, 2, `{"n":5}`, `{"n":6}`).Want(http.StatusOK)
	const cannot = "Record set cannot be sealed: "
	u.seal(set, 5).Detail(http.StatusConflict, cannot+
		"expected_count is 5 but 3 records were received; missing chunk_index: 1; "+
		"only the last chunk may hold fewer than 2 records; short chunk_index: 0")
	u.send(set, 1, `{"n":3}`, `{"n":4}`).Want(http.StatusOK)
	u.seal(set, 5).Detail(http.StatusConflict, cannot+
		"only the last chunk may hold fewer than 2 records; short chunk_index: 0")
	u.seal(set, 6).Detail(http.StatusConflict, cannot+"expected_count is 6 but 5 records were received; "+
		"only the last chunk may hold fewer than 2 records; short chunk_index: 0")
	u.requireUntouched(t, set, 5)

	good := u.create(t, 2)
	u.send(good, 0, `{"n":1}`).Want(http.StatusOK)
	u.seal(good, 1).Want(http.StatusOK)
	for _, index := range []int{0, 1} {
		u.send(good, index, `{"n":1}`).Detail(http.StatusConflict, "Record set is not open")
	}
	u.seal(good, 2).Detail(http.StatusConflict, "Record set is already sealed with 1 records, not 2")
	require.NoError(t, pg.InTx(t.Context(), u.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := recordset.Consume(ctx, tx, u.org, uuid.MustParse(strings.TrimPrefix(good, "/data/record-sets/")),
			uuid.New())
		return err
	}))
	u.Do(http.MethodDelete, good, nil).Detail(http.StatusConflict, "Record set is already consumed")
	m := u.Do(http.MethodGet, good, nil).Want(http.StatusOK).JSON()
	assert.Equal(t, "consumed", m["status"])
	assert.NotNil(t, m["batch_id"])
	assert.Nil(t, m["staging_expires_at"])
}

func TestRecordSet_OfAnotherOrganization(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	set := u.create(t, 2)
	u.send(set, 0, `{"n":1}`).Want(http.StatusOK)
	unknown := "/data/record-sets/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11"
	for _, c := range []struct {
		client *apitest.Client
		set    string
	}{{u.other, set}, {u.Client, unknown}, {u.Client, "/data/record-sets/nothing"}, {u.Client, "/data/record-sets/" +
		strings.ToUpper(set[len("/data/record-sets/"):])}} {
		for _, op := range []struct {
			method, path string
			body         any
		}{
			{http.MethodGet, "", nil}, {http.MethodDelete, "", nil}, {http.MethodPost, "/records",
				`{"chunk_index":1,"records":[{}]}`},
			{http.MethodPost, "/seal", `{"expected_count":1}`},
		} {
			c.client.Do(op.method, c.set+op.path, op.body).Detail(http.StatusNotFound, "Record set not found")
		}
	}
	u.requireUntouched(t, set, 1)
	u.As("").Do(http.MethodPost, set+"/records", `{"chunk_index":1,"records":[{}]}`).Detail(http.StatusUnauthorized,
		"Authentication required")
}

func TestRecordSet_SealBody(t *testing.T) {
	t.Parallel()
	u := serveUploads(t)
	set := u.create(t, 2)
	for body, entry := range map[string]string{
		`{}`:                       "body.expected_count missing",
		`{"expected_count":-1}`:    "body.expected_count greater_than_equal",
		`{"expected_count":null}`:  "body.expected_count null_not_allowed",
		`{"expected_count":"one"}`: "body.expected_count int_type",
	} {
		u.Do(http.MethodPost, set+"/seal", body).Invalid(entry)
	}
	u.requireUntouched(t, set, 0)
}
