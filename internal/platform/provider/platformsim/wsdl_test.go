package platformsim_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/platformsim"
	"flowlane/test/servers"
)

// wsdlFolder names a folder with vendors' WSDL files; without it, usualWSDL beside the repository is taken.
const (
	wsdlFolder = "FLOWLANE_TEST_WSDL_DIR"
	usualWSDL  = "../shared/data/wsdl"
	five9WSDL  = "five9_config_webservices_v13.wsdl"
)

// five9Answers are what the service by the WSDL answers, by operation; the package of npm writes them as the WSDL says.
const five9Answers = `{
	"addToList": {"return": {"identifier": "import-1"}},
	"asyncAddRecordsToList": {"return": {"identifier": "import-2"}},
	"updateCrmRecord": {"return": {"success": true, "uploadDuplicatesCount": 0, "uploadErrorsCount": 0, "crmRecordsDeleted": 0, "crmRecordsInserted": 1, "crmRecordsUpdated": 0}},
	"deleteRecordFromList": {"return": {"importTroubles": [{"key": "1", "kind": "NoMatchesInContacts", "rowNumber": 1, "troubleMessage": "nobody"}],
		"success": true, "uploadDuplicatesCount": 0, "uploadErrorsCount": 1}},
	"createList": {"fault": "ListAlreadyExistsFault"},
	"getListImportResult": {"fault": "ResultIsNotReadyFault"},
	"runReport": {"return": "run-1"}
}`

// startFive9 starts a service of SOAP by Five9's own WSDL, in the words of packages that others wrote.
func startFive9(t *testing.T) (url string) {
	t.Helper()
	dir := os.Getenv(wsdlFolder)
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", usualWSDL)
	}
	file, err := filepath.Abs(filepath.Join(dir, five9WSDL))
	require.NoError(t, err)
	if _, err := os.Stat(file); err != nil {
		servers.Missing(t, "there is no %s in %s; %s names another folder", five9WSDL, dir, wsdlFolder)
	}
	script, err := os.ReadFile(filepath.Join("testdata", "servers", "wsdl.cjs"))
	require.NoError(t, err)
	return "http://127.0.0.1:" + servers.Start(t, string(script), file, "WsAdminService", "WsAdminPort", five9Answers)
}

// TestFive9_Requests: what each action sends is valid by Five9's own WSDL, and what is answered by that is read as what
// it means.
func TestFive9_Requests(t *testing.T) {
	t.Parallel()
	url := startFive9(t)
	cat, err := catalog.Load(catalog.Options{BaseURLs: map[string]string{"five9": url + "/ws"}})
	require.NoError(t, err)
	sender := provider.NewSender(provider.Options{AllowHosts: []string{strings.TrimPrefix(url, "http://")}})
	t.Cleanup(sender.Close)
	want := map[string]string{
		"add_to_list": "pending", "add_records_async": "pending", "delete_from_list": "refused NoMatchesInContacts",
		"create_list": "refused ListAlreadyExistsFault", "get_import": "retry_later ResultIsNotReadyFault 3s",
	}
	tried := map[string]bool{}
	for _, c := range casesOf(t, "five9").Calls {
		tried[c.Action] = true
		t.Run(c.Action, func(t *testing.T) {
			t.Parallel()
			b := &bench{t: t, cat: cat, platform: "five9", url: url, sender: sender}
			r := b.call(c.Action, strings.ReplaceAll(string(c.Params), "LAST", "run-1"), texts(c.Rows), "", "good")
			expected := want[strings.TrimPrefix(c.Action, "five9__config__")]
			if expected == "" {
				expected = "success"
			}
			assert.Equal(t, expected, told(r), r.Message)
		})
	}
	for _, a := range cat.Actions("five9__config") {
		assert.True(t, tried[a.ID], "no case of %s", a.ID)
	}
}

// TestFive9_Simulator: what the simulator takes and what it answers, refusals and faults included, is valid by Five9's
// own WSDL.
func TestFive9_Simulator(t *testing.T) {
	t.Parallel()
	url := startFive9(t)
	b := play(t, "five9", "")
	var seen []string
	b.canned = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		b.sim.ServeHTTP(answer, r)
		if seen = append(seen, string(body)); answer.Code != http.StatusUnauthorized {
			seen = append(seen, answer.Body.String())
		}
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
	shown, _ := b.cat.Platform("five9")
	checkCalls(t, shown, b)
	require.NoError(t, b.sim.Reject(platformsim.Rule{Field: "Envelope.Body.updateCrmRecord.record.fields.0",
		Equals: "bad", Code: "ParseError"}))
	for _, code := range []string{"ListNotFoundFault", "ServiceUnavailableFault", "InvalidImportDataFault"} {
		require.NoError(t, b.sim.AddFault(platformsim.Fault{Kind: "refuse", Code: code, Message: "on demand"}))
		assert.Contains(t, told(b.call("five9__config__get_lists", `{}`, nil, "", "good")), code)
	}
	require.NoError(t, b.sim.AddFault(platformsim.Fault{Kind: "over_limit"}))
	assert.Equal(t, "retry_later OperationsLimitExceededFault 1m0s", told(b.call("five9__config__get_lists", `{}`, nil,
		"", "good")))
	assert.Equal(t, "refused ParseError", told(b.call("five9__config__update_contact",
		`{"record":{"number1":"bad"},"keys":["number1"]}`, nil, "", "good")))
	require.Greater(t, len(seen), 50)
	text, err := json.Marshal(seen)
	require.NoError(t, err)
	res, err := http.Post(url+"/check", "application/json", bytes.NewReader(text))
	require.NoError(t, err)
	defer res.Body.Close()
	faults, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, res.StatusCode, "%s", faults)
}
