package catalog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const jobs = `
id: jobs
name: Jobs
description: A platform of the operator.
status: active
services:
  - id: jobs__api
    name: API
    description: Jobs.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://jobs.example
    requires_connection: false
    status: active
    actions:
      - &ask
        id: jobs__api__get
        name: Get
        description: Reads a job.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, properties: {id: {}}}
        call: {method: GET, path: '/jobs/{{ params.id }}', answer: {success: [200]}}
      - {<<: *ask, id: jobs__api__open, call: {method: POST, path: /jobs, answer: {success: [200], reference: id}}}
      - {<<: *ask, id: jobs__api__close, outcome_check: none, call: {method: POST, path: '/jobs/{{ params.id }}/close', answer: {success: [200]}}}
      - id: jobs__api__load
        name: Load
        description: Loads records.
        default_lane: bulk
        bulk: true
        max_records_per_request: 100
        max_bytes_per_request: 100000
        outcome_check: lookup
        params_schema: {type: object, required: [row], properties: {row: {type: object}}}
        call:
          method: PUT
          path: '/jobs/{{ reference }}'
          body_form: csv
          records: {param: row, key: id, distinct: true}
          answer: {success: [201]}
          job:
            open: {action: jobs__api__open}
            commit: {action: jobs__api__close, params: {id: '{{ reference }}'}}
            uncommitted_when: '{{ answer.body.open }}'
          result:
            action: jobs__api__get
            params: {id: '{{ reference }}'}
            done_when: '{{ answer.body.done }}'
            every_seconds: 1
            rows: {by_key: true, reason: why}
`

// TestLoad_Job: a job says how it is opened, committed and asked about, and what it cannot be is a mistake.
func TestLoad_Job(t *testing.T) {
	t.Parallel()
	c, err := Load(Options{Dir: folder(t, map[string]string{"jobs.yaml": jobs})})
	require.NoError(t, err)
	a, _ := c.Action("jobs__api__load")
	assert.Equal(t, "jobs__api__open", a.Call.Job.Open.By().ID)
	assert.True(t, a.KeyedResult())
	for change, want := range map[[2]string]string{
		{"answer: {success: [200], reference: id}",
			"answer: {success: [200]}"}: "must answer with a reference",
		{"id: jobs__api__open, call", "id: jobs__api__open, outcome_check: none, call"}: "with outcome_check safe",
		{"action: jobs__api__close, params",
			"action: jobs__api__load, params"}: "must be a single-record call of one request",
		{"action: jobs__api__close, params",
			"action: jobs__api__shut, params"}: `there is no action "jobs__api__shut"`,
		{"answer: {success: [201]}", "answer: {pending: [201], reference: id}"}: "it has no pending, reference or rows",
		{"uncommitted_when: '{{ answer.body.open }}'",
			"settles_within_seconds: 1"}: "uncommitted_when",
		{"uncommitted_when: '{{ answer.body.open }}'", "uncommitted_when: '{{ params.row == null }}'"}:    "params",
		{"open: {action: jobs__api__open}", "open: {action: jobs__api__open, params: '{{ reference }}'}"}: "reference",
		{", distinct: true", ""}: "whose records are distinct",
		{"          job:\n            open: {action: jobs__api__open}\n" +
			"            commit: {action: jobs__api__close, params: {id: '{{ reference }}'}}\n" +
			"            uncommitted_when: '{{ answer.body.open }}'\n", ""}: "reference",
	} {
		require.Contains(t, jobs, change[0])
		_, err := Load(Options{Dir: folder(t, map[string]string{"jobs.yaml": strings.Replace(jobs, change[0], change[1],
			1)})})
		assert.ErrorContains(t, err, want, "%s", change)
	}
}
