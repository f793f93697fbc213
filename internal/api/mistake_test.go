package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"flowlane/test/apitest"
)

// mistake is one of testdata/mistakes.yaml.
type mistake struct {
	Mistake, Request, Raw, Body, Steps, Key string
	Header                                  map[string]string
	Status                                  int
	What, Where, Do                         string
}

// answeredMistake is what its maker reads.
type answeredMistake struct {
	placed
	status int
}

// says are all sentences of an answer.
func (a answeredMistake) says() string {
	text := string(a.Detail) + "\n" + a.Hint
	var one string
	if json.Unmarshal(a.Detail, &one) == nil {
		text = one + "\n" + a.Hint
	}
	for _, e := range a.Errors {
		text += "\n" + e.Msg
	}
	return text
}

// at are its places.
func (a answeredMistake) at() (places []string) {
	for _, e := range a.Errors {
		places = append(places, strings.Join(e.Loc, "."))
	}
	return places
}

// TestMistakes: forty typical mistakes are answered with what is wrong, where, and what to do. With -v it prints them
// as a table.
func TestMistakes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/mistakes.yaml")
	require.NoError(t, err)
	var all []mistake
	require.NoError(t, yaml.Unmarshal(text, &all))
	require.GreaterOrEqual(t, len(all), 40)
	s := serveStack(t, true)
	ids := mistakeWorld(s)
	var table strings.Builder
	for _, m := range all {
		got := makeMistake(t, s, ids, m)
		says := got.says()
		assert.Equal(t, m.Status, got.status, "%s: %s", m.Mistake, says)
		for name, want := range map[string]string{"what": m.What, "do": m.Do} {
			assert.NotEmpty(t, want, "%s: %s", m.Mistake, name)
			assert.Contains(t, strings.ToLower(says), strings.ToLower(want), "%s: %s", m.Mistake, name)
		}
		require.NotEmpty(t, m.Where, m.Mistake)
		if in, _, _ := strings.Cut(m.Where, "."); slices.Contains([]string{"body", "query", "header"}, in) {
			assert.Contains(t, got.at(), m.Where, m.Mistake)
		} else {
			assert.Contains(t, says, m.Where, "%s: where", m.Mistake)
		}
		fmt.Fprintf(&table, "| %s | %d %s | %s | %s |\n", m.Mistake, got.status, got.Code, strings.Join(got.at(), ", "),
			strings.ReplaceAll(strings.ReplaceAll(says, "|", `\|`), "\n", "<br>"))
	}
	t.Logf("%d mistakes\n| Mistake | Answer | Place | What it says |\n|---|---|---|---|\n%s", len(all), table.String())
}

// mistakeWorld is what there is when the mistakes are made: the replacements for the words in capitals.
func mistakeWorld(s *stack) *strings.Replacer {
	flow := s.define(transformSteps)
	draft := s.Do(http.MethodPost, "/flows/definitions", `{"name":"draft","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	open := s.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	used := s.upload(rowsOf(1))
	over := s.trigger(flow, `{"record_set_id":"`+used+`"}`)
	s.await(over)
	return strings.NewReplacer("CRED", s.credential, "FLOW", flow, "DRAFT", draft, "OPEN", open, "SEALED",
		s.upload(rowsOf(1)), "USED", used,
		"OVER", over, "HOOK", s.webhook(s.webhookBody()).url)
}

// makeMistake makes a mistake.
func makeMistake(t *testing.T, s *stack, ids *strings.Replacer, m mistake) answeredMistake {
	t.Helper()
	method, path, _ := strings.Cut(ids.Replace(m.Request+m.Raw), " ")
	client, header := s.Client, []string{}
	switch m.Key {
	case "none":
		client = s.As("")
	case "bearer":
		client, header = s.As(""), append(header, "Authorization", "Bearer "+s.Key)
	}
	for name, value := range m.Header {
		header = append(header, name, value)
	}
	body := ids.Replace(m.Body)
	if m.Steps != "" {
		body = definitionOf(m.Steps)
	}
	var got apitest.Response
	switch {
	case m.Raw != "":
		got = plainly(t, s, method, path)
	case body == "":
		got = client.Do(method, path, nil, header...)
	default:
		got = client.Do(method, path, body, header...)
	}
	out := answeredMistake{status: got.Status}
	require.NoError(t, json.Unmarshal(got.Body, &out.placed))
	return out
}

// plainly sends a request to a path as it is.
func plainly(t *testing.T, s *stack, method, path string) (got apitest.Response) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, http.NoBody)
	require.NoError(t, err)
	res, err := s.HTTP.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	got.Status = res.StatusCode
	got.Body, err = io.ReadAll(res.Body)
	require.NoError(t, err)
	return got
}
