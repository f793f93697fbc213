package revision_test

import (
	"errors"
	"strings"
	"testing"

	"flowlane/internal/platform/catalog/revision"
)

const first = `# Made by an import.
id: shop
name: Shop
services:
  - id: shop__orders
    name: Orders
    actions:
      - id: shop__orders__list
        name: List
      - id: shop__orders__get
        name: Get
  - id: shop__old
    name: Old
    actions:
      - id: shop__old__do
        name: Do
`

func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(text, pairs[i]) != 1 {
			t.Fatalf("%q stands %d times in\n%s", pairs[i], strings.Count(text, pairs[i]), text)
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

func effects(all []revision.Change) string {
	var out []string
	for _, c := range all {
		out = append(out, string(c.Effect)+" "+c.ID)
	}
	return strings.Join(out, "; ")
}

func TestMerge(t *testing.T) {
	t.Parallel()
	marked, err := revision.Mark([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	now := string(marked)
	second := replace(t, first, "name: List", "name: List all", "name: Get",
		"name: Get one\n      - id: shop__orders__new\n        name: New",
		"  - id: shop__old\n    name: Old\n    actions:\n      - id: shop__old__do\n        name: Do\n", "")
	for name, tc := range map[string]struct {
		current, fresh, effects string
		has, lacks              []string
	}{
		"the same": {now, first, "", []string{"name: Do"}, nil},
		"nothing by hand": {now, second,
			"changed shop__orders__list; changed shop__orders__get; added shop__orders__new; " +
				"removed shop__old__do; removed shop__old", []string{"name: List all"}, []string{"shop__old"}},
		"an edit where nothing changed": {
			replace(t, now, "name: Do", "name: Do it  # as agreed"), first, "kept shop__old__do",
			[]string{"name: Do it  # as agreed"}, nil,
		},
		"an edit where the import changed": {
			replace(t, now, "name: List\n", "# ours\n        name: Ours\n"), second,
			"conflict shop__orders__list; changed shop__orders__get; added shop__orders__new; " +
				"removed shop__old__do; removed shop__old",
			[]string{"# ours\n        name: Ours", "name: Get one"}, []string{"List all"},
		},
		"an edit of what is gone": {
			replace(t, now, "name: Do", "name: Ours"), second,
			"changed shop__orders__list; changed shop__orders__get; added shop__orders__new; conflict shop__old__do",
			[]string{"name: Ours", "id: shop__old "}, nil,
		},
		"an edit of heads": {
			replace(t, now, "name: Shop", "name: My shop\ndocs_url: x", "name: Orders", "name: My orders"), first,
			"kept shop; kept shop__orders", []string{"name: My shop\ndocs_url: x", "name: My orders"}, nil,
		},
		"an action by hand": {
			replace(t, now, "  - id: shop__old ",
				"      # by hand\n      - id: shop__orders__own\n        name: Own\n  - id: shop__old "), second,
			"changed shop__orders__list; changed shop__orders__get; added shop__orders__new; " +
				"removed shop__old__do; removed shop__old",
			[]string{"      # by hand\n      - id: shop__orders__own\n        name: Own\n"}, nil,
		},
		"a file without marks": {replace(t, first, "name: Get", "name: Mine"), first, "conflict shop__orders__get",
			[]string{"name: Mine"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			merged, changes, err := revision.Merge([]byte(tc.current), []byte(tc.fresh))
			if err != nil {
				t.Fatal(err)
			}
			if got := effects(changes); got != tc.effects {
				t.Errorf("effects: %s\nwant:    %s", got, tc.effects)
			}
			for _, text := range tc.has {
				if !strings.Contains(string(merged), text) {
					t.Errorf("%q is missing in\n%s", text, merged)
				}
			}
			for _, text := range tc.lacks {
				if strings.Contains(string(merged), text) {
					t.Errorf("%q stands in\n%s", text, merged)
				}
			}
			// Once more changes nothing.
			again, _, err := revision.Merge(merged, []byte(tc.fresh))
			if err != nil || string(again) != string(merged) {
				t.Errorf("again: %v\n%s", err, again)
			}
		})
	}
}

func TestMerge_Layout(t *testing.T) {
	t.Parallel()
	for _, current := range []string{
		"id: shop\nservices: [{id: shop__orders, actions: [{id: x}]}]\n",
		"services:\n  - id: shop__orders\n    actions:\n      - id: x\nid: shop\n",
		"id: shop\nservices: []\n", "[1]\n", "",
	} {
		if _, _, err := revision.Merge([]byte(current), []byte(first)); !errors.Is(err, revision.ErrLayout) {
			t.Errorf("%q: %v", current, err)
		}
	}
	if _, _, err := revision.Merge([]byte(strings.ReplaceAll(first, "shop", "other")), []byte(first)); err == nil ||
		!strings.Contains(err.Error(), "platform other") {
		t.Errorf("another platform: %v", err)
	}
}
