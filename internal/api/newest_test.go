package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBatches_Newest: the list can begin with the newest batch, by pages too, and one order's cursor is none of the
// other.
func TestBatches_Newest(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow, another := s.define(transformSteps), s.define(transformSteps)
	var made []string
	for range 5 {
		made = append(made, s.trigger(flow, `{}`))
		s.trigger(another, `{}`)
	}
	ids := func(items []json.RawMessage) (out []string) {
		for _, item := range items {
			out = append(out, field[string](t, item, "id"))
		}
		return out
	}
	path := "/flows/batches?definition_id=" + flow
	assert.Equal(t, made, ids(s.pages(path, 2)))
	assert.Equal(t, made, ids(s.pages(path+"&order=asc", 2)))
	back := slices.Clone(made)
	slices.Reverse(back)
	for _, limit := range []int{1, 2, 5, 50} {
		assert.Equal(t, back, ids(s.pages(path+"&order=desc", limit)))
	}
	assert.Len(t, s.pages("/flows/batches?order=desc", 3), 10)
	var page struct {
		Items      []json.RawMessage
		NextCursor string `json:"next_cursor"`
	}
	s.Do(http.MethodGet, path+"&order=desc&skip=2&limit=2", nil).Want(http.StatusOK).Into(&page)
	assert.Equal(t, back[2:4], ids(page.Items))
	s.Do(http.MethodGet, path+"&order=asc&cursor="+page.NextCursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
	s.Do(http.MethodGet, path+"&order=down", nil).Invalid("query.order enum")
	s.other.Do(http.MethodGet, "/flows/batches?order=desc", nil).Want(http.StatusOK).Into(&page)
	assert.Empty(t, page.Items)
}

// TestCatalog_Search: words find actions wherever they stand.
func TestCatalog_Search(t *testing.T) {
	t.Parallel()
	b := setup(t)
	search := func(words string) (out []string) {
		var page struct {
			Items []struct{ ID, Name, Description string }
			Total int
		}
		b.Do(http.MethodGet, "/catalog/actions?limit=500&q="+strings.ReplaceAll(words, " ", "+"),
			nil).Want(http.StatusOK).Into(&page)
		require.Len(t, page.Items, page.Total)
		for _, a := range page.Items {
			out = append(out, a.ID)
		}
		return out
	}
	assert.Contains(t, search("UPLOAD dialer"), "dialer__api__upload")
	assert.Contains(t, search("http request"), "core__http__request")
	assert.NotContains(t, search("http request"), "dialer__api__upload")
	assert.Empty(t, search("zzzz"))
	b.Do(http.MethodGet, "/catalog/actions?q=", nil).Invalid("query.q string_too_short")
}
