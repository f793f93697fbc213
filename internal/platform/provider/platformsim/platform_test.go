package platformsim_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/platformsim"
	"flowlane/test/servers"
)

// platformCases are what is tried with a platform: a file of testdata/.
type platformCases struct {
	// Fields are those of the credential that must look in a certain way; WORD stands for the secret.
	Fields map[string]string `yaml:"fields"`
	// Calls are made in order (LAST stands for what the platform called the one before) by the catalog's templates,
	// sent to the simulator, held against the vendor's document, and read.
	Calls []struct {
		Action string       `yaml:"action"`
		Params catalog.JSON `yaml:"params"`
		Rows   []catalog.JSON
		Key    string `yaml:"key"`
		// Word is the secret; good where it is empty.
		Word string `yaml:"word"`
		Want string `yaml:"want"`
	} `yaml:"calls"`
	// Answers are read as they stand here, as the vendor documents them.
	Answers []struct {
		Action  string            `yaml:"action"`
		Status  int               `yaml:"status"`
		Headers map[string]string `yaml:"headers"`
		Body    catalog.JSON      `yaml:"body"`
		Text    string            `yaml:"text"`
		Rows    []catalog.JSON    `yaml:"rows"`
		Want    string            `yaml:"want"`
	} `yaml:"answers"`
	// Results are answers to the question for the result of a call of so many rows, or pages of these.
	Results []resultCase `yaml:"results"`
}

type resultCase struct {
	Action string         `yaml:"action"`
	Body   catalog.JSON   `yaml:"body"`
	Pages  []catalog.JSON `yaml:"pages"`
	Rows   int            `yaml:"rows"`
	Want   string         `yaml:"want"`
}

// notVendors are platforms that are no third party of this kind.
var notVendors = map[string]bool{"core": true, "dialer": true, "aws": true}

func casesOf(t *testing.T, platformID string) platformCases {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", platformID+".yaml"))
	require.NoError(t, err, "every platform that ships has its cases")
	var cases platformCases
	require.NoError(t, yaml.Unmarshal(text, &cases))
	return cases
}

func shipped(t *testing.T) []*catalog.Platform {
	t.Helper()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	var out []*catalog.Platform
	for _, p := range cat.Platforms() {
		if !notVendors[p.ID] {
			out = append(out, p)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// TestPlatform_Calls: every action of every platform makes a request that the platform takes, and each answer of the
// simulator is read as what it means. Where the vendor has a document, the requests are what Prism takes by it, and the
// answers what it describes.
func TestPlatform_Calls(t *testing.T) {
	t.Parallel()
	for _, p := range shipped(t) {
		t.Run(p.ID, func(t *testing.T) {
			t.Parallel()
			checkCalls(t, p, play(t, p.ID, ""))
		})
		t.Run(p.ID+" by its document", func(t *testing.T) {
			t.Parallel()
			if name := platformsim.DocumentName(p.ID); name != "" {
				checkCalls(t, p, play(t, p.ID, servers.Document(t, name)))
			}
		})
	}
}

func checkCalls(t *testing.T, p *catalog.Platform, b *bench) {
	t.Helper()
	tried, cases := map[string]bool{}, casesOf(t, p.ID)
	b.fields = cases.Fields
	for _, c := range cases.Calls {
		word := c.Word
		if word == "" {
			word = "good"
		}
		r := b.call(c.Action, strings.ReplaceAll(string(c.Params), "LAST", b.last), texts(c.Rows), c.Key, word)
		if b.denied != "" && strings.HasPrefix(c.Want, "refused") {
			continue // Prism refuses it as the platform does
		}
		assert.Empty(t, b.denied, "Prism, of %s %s", c.Action, c.Params)
		got := told(r)
		assert.Equal(t, c.Want, got, "%s %s: %s", c.Action, c.Params, r.Message)
		tried[c.Action] = tried[c.Action] || strings.HasPrefix(got, "success") || strings.HasPrefix(got, "pending")
	}
	for _, s := range p.Services {
		for _, a := range s.Actions {
			assert.True(t, tried[a.ID], "no case has a good call of %s", a.ID)
		}
	}
	b.honest()
}

// TestPlatform_Answers: what vendors document as answers is read as what it proves.
func TestPlatform_Answers(t *testing.T) {
	t.Parallel()
	for _, p := range shipped(t) {
		t.Run(p.ID, func(t *testing.T) {
			t.Parallel()
			cases, b := casesOf(t, p.ID), play(t, p.ID, "")
			b.fields = cases.Fields
			require.NotEmpty(t, cases.Answers)
			params := map[string]string{}
			for _, c := range cases.Calls {
				if params[c.Action] == "" {
					params[c.Action] = strings.ReplaceAll(string(c.Params), "LAST", "id")
				}
			}
			for _, c := range cases.Answers {
				b.canned = func(w http.ResponseWriter, _ *http.Request) {
					body, media := string(c.Body), "application/json"
					if c.Text != "" {
						body, media = c.Text, "text/html"
					}
					w.Header().Set("Content-Type", media)
					for name, value := range c.Headers {
						w.Header().Set(name, value)
					}
					w.WriteHeader(c.Status)
					_, _ = io.WriteString(w, body)
				}
				got := told(b.call(c.Action, params[c.Action], texts(c.Rows), "", "good"))
				assert.Equal(t, c.Want, got, "%s %d %s%s", c.Action, c.Status, c.Body, c.Text)
			}
		})
	}
}

// TestPlatform_Results: what vendors document as results of jobs is read as what it says of their records.
func TestPlatform_Results(t *testing.T) {
	t.Parallel()
	for _, p := range shipped(t) {
		for _, c := range casesOf(t, p.ID).Results {
			act := actionOf(t, p, c.Action)
			ans := provider.Answer{Sent: provider.Answered, Status: http.StatusOK,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: c.Body}
			_, r := provider.ReadResult(act, &ans, c.Rows, provider.Keyed{})
			if len(c.Pages) > 0 {
				r = ofPages(act, c.Pages, c.Rows)
			}
			assert.Equal(t, c.Want, told(r), "%s %s%s", c.Action, c.Body, c.Pages)
		}
		for _, s := range p.Services {
			for _, a := range s.Actions {
				tried := slices.ContainsFunc(casesOf(t, p.ID).Results,
					func(c resultCase) bool { return c.Action == a.ID })
				assert.True(t, tried || a.Call.Result == nil, "no case has a result of %s", a.ID)
			}
		}
	}
}

func ofPages(act *catalog.Action, pages []catalog.JSON, count int) (r provider.Reading) {
	r.Kind = provider.Unknown
	read := provider.NewRowPages(act, count, provider.Keyed{})
	for _, page := range pages {
		if !read.Add(page) {
			return r
		}
	}
	if rows, ok := read.Rows(); ok {
		r.Kind, r.Rows = provider.Success, rows
	}
	return r
}

func actionOf(t *testing.T, p *catalog.Platform, id string) *catalog.Action {
	t.Helper()
	for _, s := range p.Services {
		for _, a := range s.Actions {
			if a.ID == id {
				return a
			}
		}
	}
	t.Fatalf("there is no action %s", id)
	return nil
}

// TestPlatform_Counters: what a platform counts itself is read as calls of budgets and their windows.
func TestPlatform_Counters(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]provider.Counter{"salesforce": {Bucket: "api", WindowSeconds: 86400, Limit: 100000,
		Value: 10}} {
		b := play(t, id, "")
		shown, _ := b.cat.Platform(id)
		got, _, err := b.sender.Counters(t.Context(), shown, shown.Services[0], b.secret(shown.Services[0], "good"))
		require.NoError(t, err)
		assert.Equal(t, []provider.Counter{want}, got, id)
	}
}

func texts(rows []catalog.JSON) []string {
	var out []string
	for _, row := range rows {
		out = append(out, string(row))
	}
	return out
}

// TestPlatform_Whoami: the test of a credential tells a good one from a bad one.
func TestPlatform_Whoami(t *testing.T) {
	t.Parallel()
	for _, p := range shipped(t) {
		t.Run(p.ID, func(t *testing.T) {
			t.Parallel()
			b := play(t, p.ID, "")
			b.fields = casesOf(t, p.ID).Fields
			shown, _ := b.cat.Platform(p.ID)
			svc := shown.Services[0]
			if shown.Account == nil && svc.Check == "" && svc.CheckedBy() == nil {
				t.Skip("the platform has nothing to ask")
			}
			account, err := b.sender.Whoami(t.Context(), shown, svc, b.secret(svc, "good"))
			require.NoError(t, err)
			if shown.Account != nil {
				assert.NotEmpty(t, account.Number)
			}
			_, err = b.sender.Whoami(t.Context(), shown, svc, b.secret(svc, "bad-secret"))
			require.Error(t, err, "a bad credential is told from a good one")
			b.honest()
		})
	}
}
