package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

// modifySteps changes a record of the platform for each element.
func modifySteps(more string) string {
	return `[{"id":"each","tasks":[{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","for_each":"{{ input.keys }}",` + more + `
		"params":{"list":"LIST","key":"{{ input.id }}-{{ item }}","fields":{"index":"{{ index }}"}}}]},
		{"id":"after","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ len(steps.each.mod.output) }}"}}]}]`
}

func TestForEach_Calls(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "modify", Count: 2})
	def := s.define(strings.ReplaceAll(modifySteps(
		`"when":"{{ item != \"x\" }}","retry":{"max_attempts":5,"initial_seconds":0},`), "LIST", "many"))
	rows := []string{`{"id":"none","keys":[]}`, `{"id":"one","keys":["a"]}`, `{"id":"skipped","keys":["x","x"]}`,
		`{"id":"bad","keys":7}`}
	for i := range 40 {
		rows = append(rows, fmt.Sprintf(`{"id":"r%d","keys":["x","a","b","x","c","x"]}`, i))
	}
	batch := s.trigger(def, `{"records":[`+strings.Join(rows, ",")+`]}`)
	b := s.await(batch)
	assert.Equal(t, []any{"partially_failed", 43.0, 1.0},
		[]any{b["status"], b["job_counts"].(map[string]any)["completed"], b["job_counts"].(map[string]any)["failed"]})
	want := []any{0.0, 1.0, 2.0, nil}
	for range 40 {
		want = append(want, 6.0)
	}
	assert.Equal(t, want, s.outputs(batch))
	arrived := s.sim.ArrivalsOf("acme", "many", dialersim.KindModify)
	assert.Len(t, arrived, 40*3+1)

	e := s.execution(batch, 3)
	assert.Contains(t, e.Error["message"], "for_each must give an array")
	type element struct {
		Index, Attempts int
		Status          string
		Error           map[string]any
		CompletedAt     *string `json:"completed_at"`
	}
	var detail struct {
		Steps []struct {
			Tasks []struct {
				Attempts int
				Status   string
				Output   any
				Elements []element
			}
		}
	}
	retried := 0
	for i := 4; i < 44; i++ {
		s.Do(http.MethodGet, fmt.Sprintf("/flows/executions/%s.%d.1", batch, i), nil).Want(http.StatusOK).Into(&detail)
		task := detail.Steps[0].Tasks[0]
		require.Len(t, task.Elements, 3)
		sum := 0
		for j, index := range []int{1, 2, 4} {
			assert.Equal(t, []any{index, "completed", true}, []any{task.Elements[j].Index, task.Elements[j].Status,
				task.Elements[j].CompletedAt != nil})
			sum += task.Elements[j].Attempts
		}
		assert.Equal(t, sum, task.Attempts)
		retried += sum - 3
		output := task.Output.([]any)
		require.Len(t, output, 6)
		assert.Equal(t, []any{nil, nil, nil}, []any{output[0], output[3], output[5]})
		assert.Equal(t, fmt.Sprintf("r%d-a", i-4), output[1].(map[string]any)["key"])
		assert.Equal(t, float64(sum), s.get(fmt.Sprintf("/flows/jobs/%s.%d", batch, i))["attempts"])
	}
	assert.LessOrEqual(t, retried, 2)
	var rest int
	require.NoError(t, s.owner.QueryRow(t.Context(),
		"SELECT (SELECT count(*) FROM flow.element) + (SELECT count(*) FROM flow.part)").Scan(&rest))
	assert.Zero(t, rest, "nothing is left behind")
}

func TestForEach_Failure(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	for _, tt := range []struct{ onError, status, output, message string }{
		{"fail", "failed", "null", "Element at index 1: "},
		{"continue", "completed", "[1,null,3]", ""},
	} {
		get := `[{"id":"s","tasks":[{"id":"get","action_id":"core__http__request","for_each":"{{ [1,2,3] }}","on_error":"` + tt.onError + `",
			"params":{"url":"SIM{{ item == 2 ? \"/nowhere\" : \"/echo\" }}"}}]},
			{"id":"s2","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ map(steps.s.get.output, # == null) }}"}}]}]`
		batch := s.trigger(s.define(get), `{"records":[{},{}]}`)
		s.await(batch)
		for i := range 2 {
			e := s.execution(batch, i)
			assert.Equal(t, tt.status, e.Status)
			if tt.onError == "fail" {
				assert.Contains(t, e.Error["message"], tt.message)
				assert.Equal(t, 2, e.Steps[0].Tasks[0].Attempts, "the third is not tried")
			} else {
				assert.JSONEq(t, `[false,true,false]`, string(e.Steps[1].Tasks[0].Output))
				assert.Equal(t, 3, e.Steps[0].Tasks[0].Attempts)
			}
		}
		local := `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","for_each":"{{ input.list }}","when":"{{ item != 4 }}","on_error":"` + tt.onError + `",
			"params":{"value":"{{ 2 / (item - 2) * 0 + item + index * 0 }}"}}]}]`
		batch = s.trigger(s.define(local), `{"input_data":{"list":[1,2,3]}}`)
		s.await(batch)
		e := s.execution(batch, 0)
		assert.Equal(t, tt.status, e.Status)
		assert.JSONEq(t, tt.output, string(e.Steps[0].Tasks[0].Output))
		if tt.message != "" {
			assert.Contains(t, e.Error["message"], tt.message)
		}
	}
}

// TestForEach_Unresolved loses the answer of an element: the record waits for a person, and is not sent again.
func TestForEach_Unresolved(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial", Count: 1})
	def := s.define(`[{"id":"s","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED","for_each":"{{ input.numbers }}","params":{"number":"{{ item }}","campaign":"c"}}]}]`)
	started := s.Do(http.MethodPost, "/flows/definitions/"+def+"/trigger",
		`{"input_data":{"numbers":["+420111111111","+420222222222"]}}`).Want(http.StatusOK).JSON()
	assert.Contains(t, started["estimate"].(map[string]any)["warning"],
		"for each element of a record, and one is counted here")
	batch := started["batch_id"].(string)
	s.until(batch, func(b map[string]any) bool { return b["job_counts"].(map[string]any)["unresolved"] == 1.0 })
	e := s.execution(batch, 0)
	assert.Equal(t, []string{"reconciling"}, e.statuses())
	assert.EqualValues(t, 1, s.sim.Totals().Operations["dial"].Accepted, "the next element waits")
}

func TestDefinitions_ForEach(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	steps := func(task string) string {
		return `{"name":"f","steps":[{"id":"s","tasks":[{"id":"t",` + strings.ReplaceAll(task, "CRED", s.credential) +
			`}]}]}`
	}
	for _, path := range []string{"/flows/definitions", "/flows/definitions/validate"} {
		s.Do(http.MethodPost, path, steps(
			`"action_id":"dialer__api__upload","credential_id":"CRED","for_each":"{{ input.rows }}","params":{"list":"demo","row":{}}`)).
			Invalid("body.steps.0.tasks.0.for_each value_error")
		s.Do(http.MethodPost, path, steps(
			`"action_id":"core__store__read","for_each":"{{ input.rows }}","params":{"store":"s","key":"k"}`)).
			Invalid("body.steps.0.tasks.0.for_each value_error")
	}
	for task, want := range map[string]string{
		`"for_each":"all","action_id":"core__flow__transform","params":{"value":1}`:              `for_each must be one {{ }} expression`,
		`"for_each":"{{ item }}","action_id":"core__flow__transform","params":{"value":1}`:       `"item" is not available here`,
		`"action_id":"core__flow__transform","params":{"value":"{{ item }}"}`:                    `"item" is not available here`,
		`"for_each":"{{ input.a +  }}","action_id":"core__flow__transform","params":{"value":1}`: `field for_each`,
	} {
		detail := s.Do(http.MethodPost, "/flows/definitions",
			steps(task)).Want(http.StatusUnprocessableEntity).JSON()["detail"].(map[string]any)
		assert.Contains(t, detail["expression_errors"].([]any)[0], want)
	}
	made := s.Do(http.MethodPost, "/flows/definitions",
		steps(`"for_each":"{{ input.list }}","when":"{{ item > 1 }}","action_id":"core__http__request","params":{"url":"https://example.com/{{ index }}/{{ item }}"}`)).
		Want(http.StatusCreated).JSON()
	path := "/flows/definitions/" + made["id"].(string)
	again := s.Do(http.MethodPut, path, made).Want(http.StatusOK).JSON()
	assert.Equal(t, made["steps"], again["steps"], "what was read can be sent back")

	task := dryRunTasks(s.Do(http.MethodPost, path+"/dry-run", `{"input_data":{"list":[1,2,3]}}`).Want(
		http.StatusOK).JSON())["t"]
	assert.Equal(t, 3.0, task["elements"])
	assert.Equal(t, "https://example.com/1/2", task["call"].(map[string]any)["url"], "the first that has one")
	task = dryRunTasks(s.Do(http.MethodPost, path+"/dry-run", `{"input_data":{"list":[1]}}`).Want(
		http.StatusOK).JSON())["t"]
	assert.Equal(t, []any{"resolved", 1.0, nil}, []any{task["status"], task["elements"], task["call"]})
	task = dryRunTasks(s.Do(http.MethodPost, path+"/dry-run", nil).Want(http.StatusOK).JSON())["t"]
	assert.Equal(t, []any{"failed", nil}, []any{task["status"], task["elements"]})
}

// TestForEach_TooMuch: what the elements of a record cost together is bounded, and ends the task whatever its author
// says of single elements that fail.
func TestForEach_TooMuch(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	list := "[1" + strings.Repeat(",1", 999) + "]"
	for _, onError := range []string{"fail", "continue"} {
		definition := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","for_each":"{{ input.list }}","on_error":"` + onError + `",
			"params":{"value":"{{ len(filter(input.numbers, any(input.numbers, # == -1))) }}"}}]}]`)
		numbers := "[1" + strings.Repeat(",1", 299) + "]"
		batch := s.trigger(definition, fmt.Sprintf(`{"records":[{"list":%s,"numbers":%s},{"list":[1,2],"numbers":%s}]}`,
			list, numbers, numbers))
		s.await(batch)
		e := s.execution(batch, 0)
		assert.Equal(t, []string{"failed"}, e.statuses(), onError)
		assert.Contains(t, string(e.Steps[0].Tasks[0].Output)+fmt.Sprint(e.Steps[0].Tasks[0].Error),
			"give fewer of them", onError)
		assert.Equal(t, []string{"completed"}, s.execution(batch, 1).statuses(), "its neighbour has a bound of its own")
	}
}
