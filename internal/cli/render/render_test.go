package render_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"flowlane/internal/cli/render"
)

var items = []string{
	`{"id":"a","name":"line\nbreak \u001b[31m","status":"failed","n":12345678901234567890,"at":"2026-11-25T16:12:44Z","counts":{"x":1},"none":null}`,
	`{"id":"b","name":"plain","status":"completed","n":1.50,"at":null,"counts":{},"none":null}`,
}

func list(t *testing.T, o render.Options) string {
	t.Helper()
	var out strings.Builder
	l := render.NewList(&out, o)
	for _, item := range items {
		if err := l.Add([]byte(item)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestList: every form, with numbers and order as they came, and nothing that steers a terminal.
func TestList(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options render.Options
		want    string
	}{
		"NothingInIt": {render.Options{Format: render.Table, Columns: []string{"id", "none", "n"}, Width: 25}, "" +
			"ID  N\na   12345678901234567890\nb   1.50\n"},
		"Table": {render.Options{Format: render.Table, Columns: []string{"id", "name", "counts.x", "at"}}, "" +
			"ID  NAME              COUNTS X  AT\n" +
			"a   line break �[31m  1         2026-11-25 16:12:44Z\n" +
			"b   plain             -         -\n"},
		"Narrow": {render.Options{Format: render.Table, Columns: []string{"id", "name", "n"}, Width: 30}, "" +
			"ID  NAME\na   line break �[31m\nb   plain\n"},
		"NamesCut": {render.Options{Format: render.Table, Columns: []string{"id", "status", "counts.x"}, Width: 22},
			"" +
				"ID  STATUS     COUNTS…\na   failed     1\nb   completed  -\n"},
		"Colored": {render.Options{Format: render.Table, Columns: []string{"id", "status"}, Color: true}, "" +
			"\x1b[1mID\x1b[0m  \x1b[1mSTATUS\x1b[0m\na   \x1b[31mfailed\x1b[0m\nb   \x1b[32mcompleted\x1b[0m\n"},
		"JSON":   {render.Options{Format: render.JSON}, "[" + items[0] + ",\n" + items[1] + "]\n"},
		"NDJSON": {render.Options{Format: render.NDJSON}, items[0] + "\n" + items[1] + "\n"},
		"CSV": {render.Options{Format: render.CSV, Columns: []string{"id", "n", "counts", "none"}}, "" +
			"id,n,counts,none\na,12345678901234567890,\"{\"\"x\"\":1}\",\nb,1.50,{},\n"},
		"YAML": {render.Options{Format: render.YAML},
			"- id: a\n  name: \"line\\nbreak \\e[31m\"\n  status: failed\n  n: 12345678901234567890\n  at: \"2026-11-25T16:12:44Z\"\n" +
				"  counts:\n    x: 1\n  none: null\n" +
				"- id: b\n  name: plain\n  status: completed\n  n: 1.50\n  at: null\n  counts: {}\n  none: null\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := list(t, tt.options); got != tt.want {
				t.Errorf("got\n%q\nwant\n%q", got, tt.want)
			}
		})
	}
}

// TestOne: for people a field a line.
func TestOne(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := render.One(&out, render.Options{Format: render.Table}, []byte(items[0])); err != nil {
		t.Fatal(err)
	}
	want := "id      a\nname    line break �[31m\nstatus  failed\nn       12345678901234567890\n" +
		"at      2026-11-25 16:12:44Z\n" +
		"counts\n  x: 1\nnone    -\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestList_Room: what a terminal of some width shows of a usual list, and what is said to be left out. Ids are whole or
// not there.
func TestList_Room(t *testing.T) {
	t.Parallel()
	const id = "01a217f2-5482-7ab1-a152-fb97a7741d79"
	item := `{"id":"` + id + `.17","batch_id":"` + id +
		`","position":17,"status":"rejected","attempts":1,"error":{"code":"provider_refused",` +
		`"message":"` + strings.Repeat("long ", 30) + `"},"note":null,"updated_at":"2026-11-25T16:12:44Z"}`
	columns := []string{"id", "batch_id", "position", "status", "attempts", "error.code", "note", "updated_at"}
	for _, tt := range []struct {
		width int
		head  string
		left  []string
	}{
		{0, "ID BATCH ID POSITION STATUS ATTEMPTS ERROR CODE NOTE UPDATED AT", nil},
		{150, "ID BATCH ID POSITION STATUS ATTEMPTS ERROR CODE UPDATED AT", []string{"note"}},
		{80, "ID POSITION STATUS ATTEMPTS", []string{"note", "batch_id", "updated_at", "error.code"}},
		{60, "ID POSITION STATUS", []string{"note", "batch_id", "updated_at", "error.code", "attempts"}},
		{20, "ID", []string{"note", "batch_id", "updated_at", "error.code", "attempts", "status", "position"}},
	} {
		var out strings.Builder
		var left []string
		l := render.NewList(&out, render.Options{Format: render.Table, Columns: columns, Width: tt.width,
			Left: func(c []string) { left = c }})
		if err := errors.Join(l.Add([]byte(item)), l.End()); err != nil {
			t.Fatal(err)
		}
		head, row, _ := strings.Cut(out.String(), "\n")
		if got := strings.Join(strings.Fields(head), " "); got != tt.head || !slices.Equal(left, tt.left) {
			t.Errorf("%d columns: %q without %q, want %q without %q", tt.width, got, left, tt.head, tt.left)
		}
		if !strings.HasPrefix(row, id+".17") || tt.width > 40 && len(strings.TrimSpace(row)) > tt.width {
			t.Errorf("%d columns: %q", tt.width, row)
		}
	}
	var out strings.Builder
	l := render.NewList(&out, render.Options{Format: render.Table, Columns: []string{"id", "error.message"},
		Wide: true})
	if err := errors.Join(l.Add([]byte(item)), l.End()); err != nil || strings.Contains(out.String(), "…") {
		t.Errorf("wide: %s, %v", out.String(), err)
	}
}
