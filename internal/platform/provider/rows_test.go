package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
)

const rowsAction = `
      - id: vendors__api__%s
        name: Send
        description: Sends.
        default_lane: bulk
        bulk: true
        max_records_per_request: 100
        max_bytes_per_request: 100000
        outcome_check: none
        params_schema: {type: object, required: [row], properties: {row: {}}}
        output_schema: {}
        call:
          method: POST
          path: /send
          body: {}
          records: {at: inputs, param: row}
          max_in_flight: 1
          answer:
            success: [200, 207]
            rows: %s`

// rowAnswers are the blocks of row results by action, as the answers of platforms ask for them.
var rowAnswers = map[string]string{
	"hubspot": `{at: errors, key: context.trace.0, of: trace, code: category, reason: message,
              retry_when: '{{ item.category == "RATE_LIMITS" }}', unnamed: unknown,
              more: [{at: results, is: accepted, key: trace, of: trace, output: [id]}]}`,
	"salesforce": `{order: true, failed_when: '{{ not item.success }}', code: errors.0.statusCode, reason: errors.0.message, output: [id, created]}`,
	"mailchimp":  `{at: errors, key: email_address, of: trace, ignore_case: true, code: error_code, reason: error}`,
	"klaviyo":    `{at: errors, pointer: source.pointer, under: /data/attributes/profiles/data, code: code, reason: detail}`,
	"pointer":    `{at: errors, pointer: at}`,
	"five9":      `{at: troubles, row: rowNumber, base: 1, code: kind}`,
	"zendesk":    `{at: results, row: index, failed_when: '{{ item.status == "Failed" }}', code: error, output: [id], unnamed: rejected}`,
	"taken":      `{at: taken, is: accepted, row: n, unnamed: unknown}`,
}

func rowsCatalog(t *testing.T, answers map[string]string) (*catalog.Catalog, error) {
	t.Helper()
	text := vendors
	for name, rows := range answers {
		text += fmt.Sprintf(rowsAction, name, rows)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vendors.yaml"), []byte(text), 0o600))
	return catalog.Load(catalog.Options{Dir: dir}) //nolint:wrapcheck // a test's
}

// TestRead_Rows: one answer settles some rows as taken and others as rejected, each with its own reason and output.
func TestRead_Rows(t *testing.T) {
	t.Parallel()
	c, err := rowsCatalog(t, rowAnswers)
	require.NoError(t, err)
	const unreadable = "unknown reason=unreadable_answer"
	for name, tc := range map[string]struct{ action, body, want string }{
		"by key": {"hubspot",
			`{"results":[{"id":"1","trace":"c"},{"id":"2","trace":"a"}],"errors":[{"category":"V","message":"m","context":{"trace":["b"]}}]}`, `success rows=[{0 accepted {"id":"2"}} {1 V m} {2 accepted {"id":"1"}}]`},
		"again": {"hubspot",
			`{"results":[{"id":"1","trace":"c"},{"id":"2","trace":"a"}],"errors":[{"category":"RATE_LIMITS","context":{"trace":["b"]}}]}`, `success rows=[{0 accepted {"id":"2"}} {1 retry RATE_LIMITS} {2 accepted {"id":"1"}}]`},
		"not named": {"hubspot",
			`{"results":[{"id":"1","trace":"c"}],"errors":[{"category":"V","context":{"trace":["b"]}}]}`,
			`success rows=[{0 open } {1 V } {2 accepted {"id":"1"}}]`},
		"names none": {"hubspot",
			`{"results":[{"id":"1","trace":"c"},{"id":"2","trace":"a"}],"errors":[{"category":"V"}]}`,
			`success rows=[{0 accepted {"id":"2"}} {1 open } {2 accepted {"id":"1"}}]`},
		"names another": {"hubspot", `{"results":[{"id":"1","trace":"x"}]}`, unreadable},
		"both": {"hubspot",
			`{"results":[{"id":"1","trace":"a"}],"errors":[{"context":{"trace":["a"]}}]}`, unreadable},
		"taken twice":      {"hubspot", `{"results":[{"id":"1","trace":"a"},{"id":"2","trace":"a"}]}`, unreadable},
		"no list of taken": {"hubspot", `{"errors":[]}`, unreadable},
		"in order": {"salesforce",
			`[{"id":"1","success":true,"created":false},{"success":false,"errors":[{"statusCode":"DUP","message":"m"}]},{"id":"3","success":true}]`, `success rows=[{0 accepted {"id":"1","created":false}} {1 DUP m} {2 accepted {"id":"3"}}]`},
		"one too few": {"salesforce", `[{"success":true},{"success":true}]`, unreadable},
		"one too many": {"salesforce", `[{"success":true},{"success":true},{"success":true},{"success":true}]`,
			unreadable},
		"does not say": {"salesforce", `[{"id":"1","success":true},{"id":"2"},{"id":"3","success":true}]`,
			`success rows=[{0 accepted {"id":"1"}} {1 open } {2 accepted {"id":"3"}}]`},
		"no array": {"salesforce", `{"success":true}`, unreadable},
		"key in another case": {"mailchimp", `{"errors":[{"email_address":"B","error":"is fake","error_code":"E"}]}`,
			`success out={"errors":[{"email_address":"B","error":"is fake","error_code":"E"}]} rows=[{1 E is fake}]`},
		"for two reasons": {"mailchimp",
			`{"errors":[{"email_address":"B","error_code":"E"},{"email_address":"b","error_code":"F"}]}`,
			`success out={"errors":[{"email_address":"B","error_code":"E"},{"email_address":"b","error_code":"F"}]} rows=[{1 E }]`},
		"a key that none has": {"mailchimp", `{"errors":[{"email_address":"Z"}]}`, unreadable},
		"pointer": {"klaviyo",
			`{"errors":[{"code":"c","detail":"d","source":{"pointer":"/data/attributes/profiles/data/2/attributes/email"}}]}`, `success out={"errors":[{"code":"c","detail":"d","source":{"pointer":"/data/attributes/profiles/data/2/attributes/email"}}]} rows=[{2 c d}]`},
		"pointer elsewhere": {"klaviyo", `{"errors":[{"source":{"pointer":"/data/attributes/lists/2"}}]}`,
			unreadable},
		"pointer to the row": {"pointer", `{"errors":[{"at":"#/inputs/0"}]}`,
			`success out={"errors":[{"at":"#/inputs/0"}]} rows=[{0  }]`},
		"pointer to no number": {"pointer", `{"errors":[{"at":"/inputs/x"}]}`, unreadable},
		"from 1, as text": {"five9", `{"troubles":[{"rowNumber":"3","kind":"k"}]}`,
			`success out={"troubles":[{"rowNumber":"3","kind":"k"}]} rows=[{2 k }]`},
		"from 1, 0": {"five9", `{"troubles":[{"rowNumber":0}]}`, unreadable},
		"the others failed": {"zendesk",
			`{"results":[{"index":0,"id":5,"status":"Created"},{"index":2,"status":"Failed","error":"E"}]}`,
			`success rows=[{0 accepted {"id":5}} {1  The answer does not name it among the records that were taken} {2 E }]`},
		"taken, then not": {"zendesk",
			`{"results":[{"index":0,"status":"Created"},{"index":0,"status":"Failed"}]}`, unreadable},
		"not taken, then is": {"zendesk",
			`{"results":[{"index":0,"status":"Failed"},{"index":0,"status":"Created"}]}`, unreadable},
		"only the taken": {"taken", `{"taken":[{"n":1},{"n":0}]}`,
			`success out={"taken":[{"n":1},{"n":0}]} rows=[{2 open }]`},
		"all of them": {"taken", `{"taken":[{"n":1},{"n":0},{"n":2}]}`,
			`success out={"taken":[{"n":1},{"n":0},{"n":2}]}`},
	} {
		_, act := action(t, c, "vendors__api__"+tc.action)
		ans := answered(207, tc.body)
		ans.rows = []byte(`[{"trace":"a"},{"trace":"b"},{"trace":"c"}]`)
		assert.Equal(t, tc.want, brief(Read(act, ans, 3)), name)
	}
	_, act := action(t, c, "vendors__api__mailchimp")
	ans := answered(200, `{"errors":[{"email_address":"a"}]}`)
	ans.rows = []byte(`[{"trace":"a"},{"trace":"A"}]`)
	assert.Equal(t, unreadable, brief(Read(act, ans, 2)), "a key that two rows have")
	_, act = action(t, c, "vendors__api__taken")
	assert.Equal(t, unreadable, brief(Read(act, answered(200, `{"taken":[]}`), 101)),
		"an answer that leaves everything open says nothing")
}

// TestLoad_Rows: what a list of rows cannot mean is a mistake.
func TestLoad_Rows(t *testing.T) {
	t.Parallel()
	for rows, want := range map[string]string{
		`{at: errors}`:                                     "one of row, pointer, key, by_key and order",
		`{at: errors, row: n, order: true}`:                "one of row, pointer, key, by_key and order",
		`{at: errors, row: n, base: 2}`:                    "base is 2",
		`{at: errors, key: k}`:                             "has both or neither",
		`{at: errors, row: n, of: k}`:                      "has both or neither",
		`{at: errors, row: n, is: taken}`:                  "it must be one of [accepted rejected]",
		`{at: all, row: n, failed_when: '{{ item.bad }}'}`: "unnamed must say what became of the others",
		`{at: all, row: n, is: accepted, unnamed: gone}`:   `unnamed is "gone"`,
		`{at: all, row: n, is: rejected, failed_when: '{{ item.bad }}', unnamed: unknown}`: "not by both",
		`{at: errors, row: n, output: [id]}`:                                               "only accepted records have an output",
		`{at: all, row: n, is: accepted, retry_when: '{{ item.x }}', unnamed: unknown}`:    "accepted records are not sent again",
		`{order: true, failed_when: '{{ item.bad }}', more: [{at: e, row: n}]}`:            "there can be no other",
		`{at: errors, row: n, under: /a}`:                                                  "under says where",
		`{at: errors, pointer: p, under: a}`:                                               "must be a JSON pointer",
		`{at: errors, row: n, retry_when: '{{ answer.status == 1 }}'}`:                     "answer",
		`{at: errors, by_key: true}`:                                                       "by_key is for the result of an earlier call whose records are distinct",
		`{at: errors, row: n, more: [{at: other, row: "a b"}]}`:                            `row is "a b"`,
	} {
		_, err := rowsCatalog(t, map[string]string{"x": rows})
		assert.ErrorContains(t, err, want, rows)
	}
}

// TestLoad_ResultRows: what a result cannot say is a mistake.
func TestLoad_ResultRows(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`{done_when: '{{ answer.body.ok }}', state: s, running: [r]}`:                                                           "by state or by done_when",
		`{state: s, running: [r], failed_when: '{{ answer.body.ok }}'}`:                                                         "failed_when goes with done_when",
		`{done_when: '{{ reference == "" }}'}`:                                                                                  "reference",
		`{state: s, running: [r], rows_from: {action: x}}`:                                                                      "rows_from needs rows",
		`{state: s, running: [r], rows: {order: true, failed_when: '{{ item.bad }}'}, rows_from: {action: x, page: {link: l}}}`: "a list in order comes in one piece",
		`{state: s, running: [r], rows: {row: n}, rows_from: {action: x, page: {cursor: c}}}`:                                   "must pass the cursor on",
		`{state: s, running: [r], rows: {row: n}, rows_from: {action: x, each: [a], page: {link: l}}}`:                          "have no further pages",
		`{state: s, running: [r], rows: {by_key: true}}`:                                                                        "whose records are distinct",
		`{state: s, running: [r], rows: {key: k, of: k}}`:                                                                       "must name its records by row, pointer or by_key",
	} {
		_, err := rowsCatalog(t, map[string]string{"x": "{at: errors, row: n}\n          result: " + result})
		assert.ErrorContains(t, err, want, result)
	}
}
