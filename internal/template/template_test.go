package template

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
)

func loaded(t *testing.T) *catalog.Catalog {
	t.Helper()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	return cat
}

const plain = `
id: plain
name: Plain
description: One upload.
status: active
slots: [{name: a, platform_id: dialer, description: An account.}]
steps:
  - id: s
    tasks: [{id: t, action_id: dialer__api__upload, credential_id: a, params: {list: x, row: "{{ input }}"}}]
example: {input_data: {id: "1"}}
`

func TestLoad(t *testing.T) {
	t.Parallel()
	cat := loaded(t)
	all, err := Load(cat)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(all.All()), 6)
	for name, tt := range map[string]struct{ old, now, says string }{
		"UnknownKey":      {"status: active", "status: active\nstate: x", "unknown field"},
		"Status":          {"status: active", "status: on", `status "on"`},
		"NoExample":       {`example: {input_data: {id: "1"}}`, "", "required"},
		"UnknownSlot":     {"credential_id: a", "credential_id: b", `slot "b"`},
		"UnusedSlot":      {"slots: [", "slots: [{name: b, description: x}, ", `no task uses slot "b"`},
		"TwiceTheSlot":    {"slots: [", "slots: [{name: a, description: x}, ", `slot "a"`},
		"WrongPlatform":   {"platform_id: dialer", "platform_id: core", `credential of platform "dialer"`},
		"UnknownPlatform": {"platform_id: dialer", "platform_id: nowhere", `platform "nowhere"`},
		"AnyPlatform":     {"platform_id: dialer, ", "", `credential of platform "dialer"`},
		"UnknownAction":   {"dialer__api__upload", "dialer__api__nothing", "no such action"},
		"BadExpression":   {"{{ input }}", "{{ nothing }}", "nothing"},
		"BadParams":       {"list: x, ", "", "Is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := replaced(t, plain, tt.old, tt.now)
			_, err := load(fstest.MapFS{"data/x.yaml": {Data: []byte(text)}}, cat)
			require.ErrorContains(t, err, tt.says)
			require.ErrorContains(t, err, "data/x.yaml")
		})
	}
	_, err = load(fstest.MapFS{"data/x.yaml": {Data: []byte(plain)}, "data/y.yaml": {Data: []byte(plain)}}, cat)
	require.ErrorContains(t, err, `another "plain"`)
}

func replaced(t *testing.T, text, old, now string) string {
	t.Helper()
	require.Contains(t, text, old)
	return strings.Replace(text, old, now, 1)
}

func TestDraft(t *testing.T) {
	t.Parallel()
	cat := loaded(t)
	files := fstest.MapFS{"data/a.yaml": {Data: []byte(plain)}}
	for _, status := range []string{StatusDraft, StatusArchived} {
		text := replaced(t, replaced(t, plain, "id: plain", "id: "+status), "status: active", "status: "+status)
		files["data/"+status+".yaml"] = &fstest.MapFile{Data: []byte(text)}
	}
	all, err := load(files, cat)
	require.NoError(t, err)
	for _, status := range []string{StatusDraft, StatusArchived} {
		_, err = all.Draft(status, nil)
		assert.True(t, fault.Is(err, fault.Invalid), "%v", err)
	}
	_, err = all.Draft("nothing", nil)
	assert.True(t, fault.Is(err, fault.NotFound), "%v", err)

	before, err := json.Marshal(all.All())
	require.NoError(t, err)
	one, two := uuid.NewString(), uuid.NewString()
	first, err := all.Draft("plain", map[string]string{"a": one})
	require.NoError(t, err)
	second, err := all.Draft("plain", map[string]string{"a": two})
	require.NoError(t, err)
	assert.Equal(t, one, *first.Document.Steps[0].Tasks[0].CredentialID)
	assert.Equal(t, two, *second.Document.Steps[0].Tasks[0].CredentialID)
	assert.Equal(t, map[string]string{"t": "a"}, first.Bound)
	after, err := json.Marshal(all.All())
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after), "a draft changed the template")
}
