package platformsim_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"flowlane/internal/catalog"
	"flowlane/internal/provider"
)

// platformCases are what is tried with a platform: a file of testdata/.
type platformCases struct {
	// Calls are made in order (LAST stands for what the platform called the one before) by the catalog's templates, sent to the simulator, held against the vendor's document, and read.
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

// TestPlatform_Calls: every action of every platform makes a request that the platform takes, by what the vendor documents,
// and each answer of the simulator is read as what it means.
func TestPlatform_Calls(t *testing.T) {
	t.Parallel()
	for _, p := range shipped(t) {
		t.Run(p.ID, func(t *testing.T) {
			t.Parallel()
			checkCalls(t, p, play(t, p.ID, nil))
		})
		t.Run(p.ID+" by its document", func(t *testing.T) {
			t.Parallel()
			if document := vendorDocument(t, p.ID); document != nil {
				checkCalls(t, p, play(t, p.ID, document))
			}
		})
	}
}

func checkCalls(t *testing.T, p *catalog.Platform, b *bench) {
	t.Helper()
	tried := map[string]bool{}
	for _, c := range casesOf(t, p.ID).Calls {
		var rows []string
		for _, row := range c.Rows {
			rows = append(rows, string(row))
		}
		word := c.Word
		if word == "" {
			word = "good"
		}
		got := told(b.call(c.Action, strings.ReplaceAll(string(c.Params), "LAST", b.last), rows, c.Key, word))
		assert.Equal(t, c.Want, got, "%s %s", c.Action, c.Params)
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
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	for _, p := range shipped(t) {
		cases := casesOf(t, p.ID).Answers
		require.NotEmpty(t, cases, p.ID)
		for _, c := range cases {
			act, ok := cat.Action(c.Action)
			require.True(t, ok, c.Action)
			ans := provider.Answer{Sent: provider.Answered, Status: c.Status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(c.Body)}
			if c.Text != "" {
				ans.Body = []byte(c.Text)
				ans.Header.Set("Content-Type", "text/html")
			}
			for name, value := range c.Headers {
				ans.Header.Set(name, value)
			}
			assert.Equal(t, c.Want, told(provider.Read(act, ans, len(c.Rows))), "%s %d %s%s", c.Action, c.Status, c.Body, c.Text)
		}
	}
}

// TestPlatform_Whoami: the test of a credential tells a good one from a bad one.
func TestPlatform_Whoami(t *testing.T) {
	t.Parallel()
	for _, p := range shipped(t) {
		t.Run(p.ID, func(t *testing.T) {
			t.Parallel()
			b := play(t, p.ID, nil)
			shown, _ := b.cat.Platform(p.ID)
			sender := provider.NewSender(provider.Options{AllowHosts: []string{strings.TrimPrefix(b.url, "http://")}})
			t.Cleanup(sender.Close)
			svc := shown.Services[0]
			account, err := sender.Whoami(t.Context(), shown, svc, b.secret(svc, "good"))
			require.NoError(t, err)
			if shown.Account != nil {
				assert.NotEmpty(t, account.Number)
			}
			_, err = sender.Whoami(t.Context(), shown, svc, b.secret(svc, "bad-secret"))
			require.Error(t, err, "a bad credential is told from a good one")
			b.honest()
		})
	}
}
