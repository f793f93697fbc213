package api_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/orgexport"
	"flowlane/test/apitest"
)

// byteColumns are all columns of bytes, and those that are called like secrets, with whether an export shows them, and
// why it may or must not. A new one has to be added here.
var byteColumns = map[string]string{
	"api_key.created_by_key_id": "an id",
	"api_key.hash": "left: opens the organization for who can " +
		"guess at it: the keyed hash of a key",
	"audit_log.api_key_id":                "an id",
	"batch.page":                          "left: in records/",
	"batch.trace":                         "the ids of a trace and a span",
	"call.exclusive_key":                  "made of the parameters of a call",
	"call.first_key":                      "the key of a record",
	"call.key_sums":                       "digests of the keys of records",
	"batch_count.fragment":                "opened",
	"call.last_key":                       "the key of a record",
	"credential.token_url":                "an address",
	"credential_authorization.api_key_id": "an id",
	"credential_authorization.state_hash": "left: the hash of what lets a person back in who authorizes a credential",
	"exchange.detail":                     "opened: secrets are masked before it is stored",
	"fragment.body":                       "opened",
	"idempotency_key.answer": "left: an answer that is kept to be given again; " +
		"what it tells of is in the other tables",
	"idempotency_key.body_hash": "left: a keyed hash, of use to this installation alone",
	"idempotency_key.key_hash":  "left: a keyed hash, of use to this installation alone",
	"move_name.name":            "left: opens nothing: the keyed hash of a key, and ids",
	"kept_key.key_batch":        "an id",
	"org_keyset.wrapped":        "left: the keys of the organization's secrets, encrypted",
	"record_chunk.digest":       "a digest of records, which are exported",
	"record_set.content_hash":   "a digest of the records, which are exported",
	"record_set.sealed_at":      "a time",
	"part.keyed_since":          "a time",
	"secret.ciphertext":         "left: a secret, encrypted",
	"session.api_key_id":        "an id",
	"session.hash":              "left: opens the organization for who can guess at it: the keyed hash of a session",
	"store_record.key":          "the key of a record",
	"variable_set.keys":         "names, types and defaults, as the API shows them",
	"wait.match_key":            "a digest of a value of an event",
	"webhook.secret_version":    "a number",
	"webhook_delivery.body":     "opened",
}

// exportOf exports an organization and returns the files of the archive, with the manifest.
func (s *stack) exportOf(org string, change ...func(*orgexport.Service)) (files map[string]string,
	manifest map[string]any) {
	s.t.Helper()
	exports, err := app.Exports(s.t.Context(), s.owner, s.config.BlobURL, "v0.0.1")
	require.NoError(s.t, err)
	for _, do := range change {
		do(exports)
	}
	var text bytes.Buffer
	total, err := exports.Write(s.t.Context(), orgexport.Request{OrgID: uuid.MustParse(org), To: &text,
		Dir: s.t.TempDir()})
	require.NoError(s.t, err)
	plain, err := gzip.NewReader(&text)
	require.NoError(s.t, err)
	files = map[string]string{}
	var names []string
	for archive := tar.NewReader(plain); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(s.t, err)
		body, err := io.ReadAll(archive)
		require.NoError(s.t, err)
		require.NotContains(s.t, files, head.Name)
		files[head.Name], names = string(body), append(names, head.Name)
	}
	require.Equal(s.t, "manifest.json", names[len(names)-1])
	require.NoError(s.t, json.Unmarshal([]byte(files["manifest.json"]), &manifest), files["manifest.json"])
	delete(files, "manifest.json")
	assert.EqualValues(s.t, len(files), total.Files)
	listed := 0
	for _, f := range manifest["files"].([]any) {
		listing := f.(map[string]any)
		name := listing["name"].(string)
		assert.EqualValues(s.t, strings.Count(files[name], "\n"), listing["rows"], name)
		assert.EqualValues(s.t, len(files[name]), listing["bytes"], name)
		listed++
	}
	assert.Len(s.t, files, listed)
	return files, manifest
}

// shownOnce are the secrets in the answer to a call that made something.
func shownOnce(res apitest.Response) (secrets []string) {
	const short = 20
	var made map[string]any // some answer with lists, or nothing
	_ = json.Unmarshal(res.Body, &made)
	for name, v := range made {
		text, _ := v.(string)
		if _, after, ok := strings.Cut(text, "#"); ok && name == "url" {
			text = after
		}
		if u, err := url.Parse(text); err == nil && u.Query().Has("state") {
			text = u.Query().Get("state")
		}
		if slices.Contains([]string{"key", "token", "signing_secret", "url", "authorization_url"}, name) &&
			len(text) >= short {
			secrets = append(secrets, text)
		}
	}
	for _, c := range (&http.Response{Header: res.Header}).Cookies() {
		secrets = append(secrets, c.Value)
	}
	return secrets
}

// fillForExport has an organization have something of everything, and returns the secrets that it used.
func (s *stack) fillForExport(receiver string) (secrets []string) {
	s.t.Helper()
	secrets = []string{s.Key, s.other.Key, "kAnAryAccessToken0123"}
	for _, operation := range changingOperations(s.t) {
		if prepare, ok := auditedCalls[operation]; ok && !strings.HasPrefix(operation, "delete") &&
			!strings.HasPrefix(operation, "revoke") {
			call := prepare(s)
			secrets = append(secrets, shownOnce(s.Do(call.method, call.path, call.body).Want(call.status))...)
		}
	}
	require.Greater(s.t, len(secrets), 3+5, "keys, tokens, sessions and signing secrets are shown once")
	s.restart(true)
	dialer := s.credential
	for name, body := range canaryCredentials(receiver) {
		for _, v := range body["credentials"].(object) {
			if text, _ := v.(string); strings.HasPrefix(text, "kAnAry") {
				secrets = append(secrets, text)
			}
		}
		s.useCanary(name, body, receiver)
	}
	s.credential = dialer
	return append(secrets, s.webhookSecret(map[string]string{})...)
}

// TestOrganization_Export: an archive has a file of each table, all records digit for digit, the results as the API
// gives them, and what is packed in rows; no secret that was used, and nothing of another organization.
func TestOrganization_Export(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(receiver.Close)
	terse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(terse.Close)
	s := serveStack(t, false, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, hostOf(receiver.URL), hostOf(terse.URL))
	})
	secrets := s.fillForExport(receiver.URL)
	org, others := s.orgID(s.Key), s.orgID(s.other.Key)

	rows := append(rowsOf(600), `{"id":"odd","n":1.10e5,"t":"\u017b <&> \/ "}`,
		"{\n \"id\" : \"wide\",\r\n\t\"n\": 0.1000 }")
	set := s.upload(rows)
	sent := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, set))
	brought := s.Do(http.MethodPost, "/flows/definitions/"+s.define(transformSteps)+"/trigger",
		`{"records":[{"n":1.50}]}`, "Idempotency-Key", "once").
		Want(http.StatusOK).JSON()["batch_id"].(string)
	many := s.trigger(s.define(transformSteps), `{"records":[`+strings.Join(rowsOf(700), ",")+`]}`)
	small := s.trigger(s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",`+
		`"params":{"method":"PUT","url":%q,"body":{}}}]}]`, terse.URL)), oneRecord)
	for _, batch := range []string{sent, brought, many, small} {
		s.await(batch)
	}
	open := s.made("/data/record-sets", `{"chunk_size":2}`)
	for _, chunk := range []string{`{"chunk_index":3,"records":[{"n":6},{"n":7}]}`,
		`{"chunk_index":1,"records":[{"n":2},{"n":3}]}`} {
		s.Do(http.MethodPost, "/data/record-sets/"+open+"/records", chunk).Want(http.StatusOK)
	}
	def := s.other.Do(http.MethodPost, "/flows/definitions", `{"name":"f","status":"active","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	theirs := s.other.Do(http.MethodPost, "/flows/definitions/"+def+"/trigger",
		oneRecord).Want(http.StatusOK).JSON()["batch_id"].(string)
	s.eventually(func() bool {
		return s.other.Do(http.MethodGet, "/flows/batches/"+theirs, nil).JSON()["status"] == "completed"
	})
	s.restart(false)

	for _, column := range []string{"hash FROM flow.api_key", "hash FROM flow.session", "ciphertext FROM flow.secret",
		"wrapped FROM flow.org_keyset", "key_hash FROM flow.idempotency_key"} {
		var sealed [][]byte
		s.scan("SELECT array_agg(x."+strings.Replace(column, " FROM", ") FROM", 1)+" x WHERE org_id = $1", &sealed, org)
		require.NotEmpty(t, sealed, column)
		for _, v := range sealed {
			secrets = append(secrets, string(v))
		}
	}

	files, manifest := s.exportOf(org)
	apitest.WantNo(t, append(secrets, others, def, theirs), files)
	s.wantTables(files, org)
	s.wantColumns(files, manifest["left_out"].(map[string]any))

	want := strings.Join(rows[:601], "\n") + "\n" + `{"id":"wide","n":0.1000}` + "\n"
	assert.Equal(t, want, files["records/"+set+".ndjson"])
	assert.NotContains(t, files, "records/"+sent+".ndjson")
	assert.Equal(t, `{"n":1.50}`+"\n", files["records/"+brought+".ndjson"])
	assert.Equal(t, strings.Join(rowsOf(700), "\n")+"\n", files["records/"+many+".ndjson"])
	assert.Equal(t, `{"n":2}`+"\n"+`{"n":3}`+"\n"+`{"n":6}`+"\n"+`{"n":7}`+"\n", files["records/"+open+".ndjson"])
	batches := s.pages("/flows/batches", 100)
	for _, b := range batches {
		id := field[string](t, b, "id")
		assert.Equal(t, string(s.Do(http.MethodGet, "/flows/batches/"+id+"/results?format=ndjson",
			nil).Want(http.StatusOK).Body), files["results/"+id+".ndjson"], id)
	}
	results := slices.DeleteFunc(slices.Collect(maps.Keys(files)),
		func(name string) bool { return !strings.HasPrefix(name, "results/") })
	assert.Len(t, results, len(batches))
	assert.Equal(t, map[string]any{"id": org, "name": "Acme"}, manifest["organization"])
	assert.Equal(t, "v0.0.1", manifest["version"])
	s.wantOpened(files, receiver.URL)
}

// wantTables checks that each table with rows of organizations has a file with all that it has of one.
func (s *stack) wantTables(files map[string]string, org string) {
	s.t.Helper()
	var tables []string
	s.scan(`SELECT array_agg(c.table_name::text ORDER BY 1) FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE table_schema = 'flow' AND column_name = 'org_id' AND table_type = 'BASE TABLE'`, &tables)
	require.Greater(s.t, len(tables), 35)
	full := 0
	for _, table := range tables {
		lines := slices.Collect(strings.Lines(files["tables/"+table+".ndjson"]))
		require.Contains(s.t, files, "tables/"+table+".ndjson")
		assert.Len(s.t, lines, s.count("flow."+table+" WHERE org_id = $1", org), table)
		for _, line := range lines {
			row := rowOf(s.t, line)
			require.Equal(s.t, org, row["org_id"], table)
			if at, ok := row["created_at"].(string); ok {
				when, err := time.Parse(time.RFC3339Nano, at)
				require.NoError(s.t, err)
				_, offset := when.Zone()
				require.Zero(s.t, offset)
			}
		}
		if len(lines) > 0 {
			full++
		}
	}
	assert.Greater(s.t, full, 30, "it has something of nearly everything")
	for _, table := range []string{"slice", "job", "fragment", "batch_vars"} {
		assert.Equal(s.t, s.count("flow."+table+" x JOIN flow.batch b ON b.id = x.batch_id WHERE b.org_id = $1", org),
			strings.Count(files["tables/"+table+".ndjson"], "\n"), table)
	}
	assert.Equal(s.t, s.count("flow.record_chunk c JOIN flow.record_set r ON r.id "+
		"= c.record_set_id WHERE r.org_id = $1", org), strings.Count(files["tables/record_chunk.ndjson"], "\n"))
	assert.Equal(s.t, 1, strings.Count(files["tables/organization.ndjson"], "\n"))
	assert.Contains(s.t, files["tables/audit_log.ndjson"], `"action":"`+orgexport.Name+`"`)
}

// wantColumns checks that somebody has said of each column of bytes, and of each that is called like a secret, what
// becomes of it.
func (s *stack) wantColumns(files map[string]string, left map[string]any) {
	s.t.Helper()
	var columns, names []string
	s.scan(`SELECT array_agg(c.table_name || '.' || c.column_name ORDER BY 1) FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE table_schema = 'flow' AND table_type = 'BASE TABLE'
			AND (c.data_type = 'bytea' OR c.column_name ~ '(secret|token|passw|hash|key|wrapped|cipher|sealed|private|sign)')`, &columns)
	for _, column := range columns {
		table, name, _ := strings.Cut(column, ".")
		if left[table] != nil {
			continue // nothing is shown of the whole table
		}
		names = append(names, column)
		lines := files["tables/"+table+".ndjson"]
		switch why, known := byteColumns[column]; {
		case !known:
			s.t.Errorf("nobody has said whether an export may show %s", column)
		case strings.HasPrefix(why, "left: "):
			assert.Equal(s.t, strings.TrimPrefix(why, "left: "), left[column], column)
			for line := range strings.Lines(lines) {
				assert.NotContains(s.t, rowOf(s.t, line), name, column)
			}
		default:
			assert.NotContains(s.t, left, column)
			for line := range strings.Lines(lines) {
				assert.Contains(s.t, rowOf(s.t, line), name, "%s: %s", column, why)
			}
		}
	}
	assert.ElementsMatch(s.t, names, slices.Collect(maps.Keys(byteColumns)))
}

func rowOf(t *testing.T, line string) (row map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(line), &row), line)
	return row
}

// wantOpened checks that what is packed in rows can be read.
func (s *stack) wantOpened(files map[string]string, receiver string) {
	s.t.Helper()
	shown := map[string]any{}
	for line := range strings.Lines(files["tables/exchange.ndjson"]) {
		var row struct {
			ID     string
			Detail map[string]any
		}
		require.NoError(s.t, json.Unmarshal([]byte(line), &row))
		shown[row.ID] = row.Detail["url"]
	}
	assert.Contains(s.t, slices.Collect(maps.Values(shown)), any(receiver+"/refuse"))
	for _, c := range s.get("/flows/calls?limit=200")["items"].([]any) {
		call := c.(map[string]any)
		if request, ok := call["request"].(map[string]any); ok {
			assert.Equal(s.t, request["url"], shown[call["id"].(string)])
		}
	}
	type attempts []struct {
		Kind     string
		From, To int
	}
	kinds, small := map[string]int{}, 0
	for line := range strings.Lines(files["tables/fragment.ndjson"] + files["tables/batch_count.ndjson"]) {
		var row struct{ Body, Fragment attempts }
		require.NoError(s.t, json.Unmarshal([]byte(line), &row))
		for _, b := range append(row.Body, row.Fragment...) {
			kinds[b.Kind] += b.To - b.From
		}
		small += len(row.Fragment)
	}
	assert.Greater(s.t, kinds["ok"], 1300)
	assert.Positive(s.t, kinds["failed"])
	assert.Positive(s.t, small, "what calls of small batches did")
	var delivery struct{ Body string }
	require.NoError(s.t, json.Unmarshal([]byte(strings.SplitN(files["tables/webhook_delivery.ndjson"], "\n", 2)[0]),
		&delivery))
	assert.True(s.t, json.Valid([]byte(delivery.Body)), delivery.Body)
}

// TestOrganization_Export_Deleted: what is deleted while it is read is not there in part.
func TestOrganization_Export_Deleted(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(transformSteps)
	kept, gone := s.trigger(flow, oneRecord), s.trigger(flow, oneRecord)
	s.await(kept)
	s.await(gone)
	var org string
	s.scan("SELECT org_id::text FROM flow.batch WHERE id = $1", &org, kept)
	files, _ := s.exportOf(org, func(exports *orgexport.Service) {
		read := exports.Results
		exports.Results = func(ctx context.Context, orgID, batchID uuid.UUID) (io.Reader, error) {
			results, err := read(ctx, orgID, batchID)
			if batchID.String() == gone {
				s.Do(http.MethodDelete, "/flows/batches/"+gone, nil).Want(http.StatusNoContent)
			}
			return results, err
		}
	})
	assert.Contains(t, files, "results/"+kept+".ndjson")
	assert.NotContains(t, files, "results/"+gone+".ndjson")
}
