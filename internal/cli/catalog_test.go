package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCatalog_ImportAndValidate(t *testing.T) {
	t.Parallel()
	document, err := filepath.Abs("../catalog/openapi/testdata/hostile.yaml")
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
	if imported.PlatformID != "h" || imported.File != file || imported.Actions == 0 || imported.LeftOut == 0 || len(imported.Report) == 0 {
		t.Errorf("the import says %+v", imported)
	}
	var checked struct {
		Valid     bool     `json:"valid"`
		Platforms []string `json:"platforms"`
		Actions   int      `json:"actions"`
	}
	for _, path := range []string{file, filepath.Dir(file)} {
		output(t, nil, &checked, "catalog", "validate", path)
		if !checked.Valid || len(checked.Platforms) != 1 || checked.Platforms[0] != "h" || checked.Actions != imported.Actions {
			t.Errorf("%s: %+v", path, checked)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(strings.Replace(string(text), "status: active", "status: on", 1), "outcome_check: keyed", "outcome_check: maybe", 1)
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, says := fails(t, nil, "catalog", "validate", file); code != 1 || !strings.Contains(says, "2 mistakes") {
		t.Errorf("exit code %d: %s", code, says)
	}
	if code, says := fails(t, nil, "catalog", "import", "openapi", document, "--platform-id", "dialer"); code != 1 || !strings.Contains(says, "already described") {
		t.Errorf("a taken id: exit code %d: %s", code, says)
	}
}
