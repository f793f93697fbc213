package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCatalog_ImportAndValidate(t *testing.T) {
	t.Parallel()
	document, err := filepath.Abs("../platform/catalog/openapi/testdata/hostile.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "h.yaml")
	var imported struct {
		PlatformID string `json:"platform_id"`
		File       string `json:"file"`
		Actions    int    `json:"actions"`
		LeftOut    int    `json:"operations_left_out"`
		Report     []struct {
			Pointer, Effect, Message string
			Line                     int
		} `json:"report"`
	}
	output(t, nil, &imported, "catalog", "import", "openapi", document, "--platform-id", "h", "--out", file)
	if imported.PlatformID != "h" || imported.File != file || imported.Actions == 0 || imported.LeftOut == 0 ||
		len(imported.Report) == 0 {
		t.Errorf("the import says %+v", imported)
	}
	var checked struct {
		Valid     bool     `json:"valid"`
		Platforms []string `json:"platforms"`
		Actions   int      `json:"actions"`
	}
	for _, path := range []string{file, filepath.Dir(file)} {
		output(t, nil, &checked, "catalog", "validate", path)
		if !checked.Valid || len(checked.Platforms) != 1 || checked.Platforms[0] != "h" ||
			checked.Actions != imported.Actions {
			t.Errorf("%s: %+v", path, checked)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(strings.Replace(string(text), "status: active", "status: on", 1), "outcome_check: keyed",
		"outcome_check: maybe", 1)
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, says := fails(t, nil, "catalog", "validate", file); code != 1 || !strings.Contains(says, "2 mistakes") {
		t.Errorf("exit code %d: %s", code, says)
	}
	if code, says := fails(t, nil, "catalog", "import", "openapi", document, "--platform-id", "dialer"); code != 1 ||
		!strings.Contains(says, "already described") {
		t.Errorf("a taken id: exit code %d: %s", code, says)
	}
}

// TestCatalog_ImportAgain imports over a file that people have changed: nothing is written unasked, and what they
// changed stays until it is to be replaced.
func TestCatalog_ImportAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	document, file := filepath.Join(dir, "doc.yaml"), filepath.Join(dir, "shop.yaml")
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const first = `openapi: 3.1.0
info: {title: Shop}
servers: [{url: "https://shop.example"}]
paths:
  /a: {get: {operationId: a, responses: {"200": {description: ok}}}}
  /b: {get: {operationId: b, responses: {"200": {description: ok}}}}
`
	var says struct {
		Written bool
		Actions int
		Skipped int `json:"operations_skipped"`
		Changes []struct{ ID, Effect, Diff string }
	}
	run := func(more ...string) string {
		t.Helper()
		says.Changes = nil
		output(t, nil, &says, append([]string{"catalog", "import", "openapi", document, "--out", file}, more...)...)
		var out []string
		for _, c := range says.Changes {
			out = append(out, c.Effect+" "+c.ID)
		}
		return strings.Join(out, ", ")
	}
	put(document, first)
	if changes := run("--only", "a"); changes != "" || !says.Written || says.Actions != 1 || says.Skipped != 1 {
		t.Errorf("the first import says %q, %+v", changes, says)
	}
	put(file, strings.Replace(read(), "max_records_per_request: 1",
		"max_records_per_request: 1 # ours\n        max_bytes_per_request: 1000", 1))
	edited := read()
	put(document, strings.Replace(first, "operationId: a,", "operationId: a, deprecated: true,", 1))
	const all = "conflict shop__api__a, added shop__api__b"
	if changes := run(); changes != all || says.Written || read() != edited {
		t.Errorf("the second import says %q, %+v; the file is\n%s", changes, says, read())
	}
	if !strings.Contains(says.Changes[0].Diff, "+        deprecated: true") || !strings.Contains(says.Changes[0].Diff,
		"-        max_bytes_per_request: 1000") {
		t.Errorf("the diff is %s", says.Changes[0].Diff)
	}
	if changes := run("--write"); changes != all || !says.Written || !strings.Contains(read(), "1 # ours") ||
		!strings.Contains(read(), "id: shop__api__b") {
		t.Errorf("with --write: %q, the file is\n%s", changes, read())
	}
	if changes := run("--replace"); changes != "conflict shop__api__a" || !says.Written || strings.Contains(read(),
		"ours") || !strings.Contains(read(), "deprecated: true") {
		t.Errorf("with --replace: %q, the file is\n%s", changes, read())
	}
	put(file, "id: shop\nservices: []\n")
	if code, text := fails(t, nil, "catalog", "import", "openapi", document, "--out", file, "--write"); code != 1 ||
		!strings.Contains(text, "--replace") {
		t.Errorf("a file of another layout: %d %s", code, text)
	}
}
