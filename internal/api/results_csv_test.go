package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/batch"
	"flowlane/internal/platform/provider/dialersim"
)

// formulas are texts that a spreadsheet computes, texts are others that must come through as they are.
var (
	formulas = []string{"=1+1", `=HYPERLINK("http://127.0.0.1/"&A1,"see")`, "+1 555 0100", "-1+cmd|' /C calc'!A0",
		"@SUM(A1:A9)", "\t=1", "\r=1", "\n=1", "=1", "＝1+1", "-", "=,\"\n", "=,\""}
	texts = []string{"plain", "one, two", `say "so"`, `"`, "a\nb", "a\r\nb", "a\rb", "a\n\rb\n", " leads", "trails ",
		"-32601", "+1.5e3", "'=1", "a=1", "Łódź 🚀 かな", "\ufeffmark", "\u2028", ";", `\n`}
)

// TestResults_CSV compares every column of an export with the page of the same results, for jobs in every status that a
// job comes to, with texts that break a careless writer.
func TestResults_CSV(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	all := append(slices.Clone(texts), formulas...)
	rules := make([]dialersim.Rule, len(all))
	for i, text := range all {
		rules[i] = dialersim.Rule{Kind: "equals", Field: "n", Value: fmt.Append(nil, i), Code: text, Reason: text}
	}
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: rules})
	sent := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(len(all)+3))))
	local := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"echo","action_id":"core__flow__transform","params":{"value":"{{ input.v }}"}}]},
		{"id":"end","tasks":[{"id":"no","when":"{{ input.fail }}","action_id":"core__flow__fail","params":{"message":"{{ input.v }}"}},
			{"id":"again","action_id":"core__flow__transform","params":{"value":"{{ input.v }}"}}]}]`), `{"records":`+
		localRows(all)+`}`)
	require.Equal(t, map[string]int{"accepted": 3, "rejected": len(all)}, counted(s.await(sent)))
	require.Equal(t, map[string]int{"completed": len(all) + 5, "failed": len(all)}, counted(s.await(local)))
	s.restart(false)

	rows := fmt.Sprintf(`{"records":[%s]}`, strings.Join(rowsOf(3), ","))
	flow := s.define(uploadSteps)
	queued, asked, lost, dropped := s.trigger(flow, rows), s.trigger(flow, rows), s.trigger(flow, rows),
		s.trigger(flow, rows)
	staged := s.trigger(flow, `{"scheduled_at":"2099-01-01T00:00:00Z",`+rows[1:])
	s.doubt(asked, "unknown")
	s.resolve(asked, 1, `{"outcome":"rejected","note":"=said, \"by phone\"\n"}`)
	s.doubt(lost, "unresolved")
	flying := s.trigger(flow, rows)
	s.doubt(flying, "intent")
	s.Do(http.MethodPost, "/flows/batches/"+dropped+"/cancel", nil).Want(http.StatusOK)

	seen := map[string]int{}
	for _, batch := range []string{sent, local, queued, asked, lost, dropped, staged, flying} {
		maps.Copy(seen, s.wantTable(batch))
	}
	for _, status := range batch.Statuses {
		switch status {
		case batch.Pending, batch.Cancelled: // of the contract; no job comes to them
		default:
			assert.NotZero(t, seen[string(status)], "no job is %s", status)
		}
	}
	table := s.table("/flows/batches/" + queued + "/results?format=csv&status=rejected")
	assert.Len(t, table, 1, "the names of the columns, and no row")
}

// localRows are rows whose values are these texts, once to be shown and once to fail with, and other JSON.
func localRows(texts []string) string {
	var rows []map[string]any
	for _, text := range texts {
		rows = append(rows, map[string]any{"v": text, "fail": false}, map[string]any{"v": text, "fail": true})
	}
	for _, v := range []any{nil, -1.5, true, map[string]any{"a,b": "=1", `"`: []any{}}, []any{"x\r\n", 1}} {
		rows = append(rows, map[string]any{"v": v, "fail": false})
	}
	out, _ := json.Marshal(rows) // of plain values
	return string(out)
}

// wantTable compares an export as CSV with the list and returns how many jobs of each status there are.
func (s *stack) wantTable(batch string) (seen map[string]int) {
	s.t.Helper()
	t, path, seen := s.t, "/flows/batches/"+batch+"/results", map[string]int{}
	res := s.Do(http.MethodGet, path+"?format=csv", nil).Want(http.StatusOK)
	table := parseCSV(t, string(res.Body))
	list := s.pages(path, 7)
	require.Len(t, table, len(list)+1)
	require.Equal(t, []string{"position", "job_id", "status", "output", "error_code", "error_message",
		"step_id", "task_id", "provider_status", "provider_code", "provider_message", "skipped_tasks", "key"}, table[0])
	for i, item := range list {
		var r struct {
			Position json.Number
			JobID    string `json:"job_id"`
			Status   string
			Output   json.RawMessage
			Skipped  []string `json:"skipped_tasks"`
			Error    *struct {
				Code, Message   string
				StepID          *string `json:"step_id"`
				TaskID          *string `json:"task_id"`
				ProviderStatus  *int    `json:"provider_status"`
				ProviderCode    *string `json:"provider_code"`
				ProviderMessage *string `json:"provider_message"`
			}
		}
		require.NoError(t, json.Unmarshal(item, &r))
		want := []string{r.Position.String(), r.JobID, r.Status, string(r.Output), "", "", "", "", "", "", "",
			strings.Join(r.Skipped, " "), ""}
		if want[3] == "null" {
			want[3] = ""
		}
		if e := r.Error; e != nil {
			want[4] = e.Code
			var status *string
			if e.ProviderStatus != nil {
				status = new(strconv.Itoa(*e.ProviderStatus))
			}
			for k, text := range []*string{&e.Message, e.StepID, e.TaskID, status, e.ProviderCode, e.ProviderMessage} {
				if text == nil {
					continue
				}
				want[5+k] = *text
				if slices.Contains(formulas, *text) {
					want[5+k] = "'" + *text
				}
			}
		}
		require.Equal(t, want, table[i+1], "row %d", i)
		seen[r.Status]++
	}
	return seen
}

// parseCSV reads RFC 4180 to the letter; that of encoding/csv changes line breaks.
func parseCSV(t *testing.T, text string) (rows [][]string) {
	t.Helper()
	var row []string
	for text != "" {
		var field string
		if strings.HasPrefix(text, `"`) {
			for text = text[1:]; ; {
				part, rest, closed := strings.Cut(text, `"`)
				require.True(t, closed, "a quote is open")
				field, text = field+part, rest
				if !strings.HasPrefix(text, `"`) {
					break
				}
				field, text = field+`"`, text[1:]
			}
		} else {
			end := strings.IndexAny(text, ",\r\n\"")
			require.NotEqual(t, -1, end, "the last line has no end")
			field, text = text[:end], text[end:]
		}
		row = append(row, field)
		switch {
		case strings.HasPrefix(text, ","):
			text = text[1:]
		case strings.HasPrefix(text, "\r\n"):
			rows, row, text = append(rows, row), nil, text[2:]
		default:
			require.Fail(t, "a field goes on", "%.30q", text)
		}
	}
	require.Empty(t, row, "the last line has no end")
	return rows
}
