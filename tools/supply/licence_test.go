package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/licenseclassifier/v2/assets"
)

func TestRules(t *testing.T) {
	t.Parallel()
	r := rules{Allowed: []string{"MIT", "ISC"}, Known: map[string]string{"odd": "ISC"}}
	for expression, want := range map[string]bool{
		"MIT": true, "(MIT OR GPL-3.0)": true, "GPL-3.0 OR ISC": true, "MIT AND ISC": true, "MIT AND GPL-3.0": false, "GPL-3.0": false,
		"mit": false, "MIT OR (ISC AND GPL-3.0)": false, "": false, "SEE LICENSE IN x": false,
	} {
		if got := r.allows(expression); got != want {
			t.Errorf("%q is allowed: %t", expression, got)
		}
	}
	got := r.refused([]part{{"good", "MIT"}, {"odd", ""}, {"none", ""}, {"bad", "AGPL-3.0"}})
	if want := []string{"none: no licence was recognized", "bad: AGPL-3.0 is not allowed"}; !slices.Equal(got, want) {
		t.Errorf("refused are %q", got)
	}
}

// TestLicencesIn reads licences as modules have them.
func TestLicencesIn(t *testing.T) {
	t.Parallel()
	c, err := assets.DefaultClassifier()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, file := range map[string]string{"MIT": "pristine.txt", "GPL-3.0": "license.txt"} {
		text, err := assets.ReadLicenseFile("License/" + name + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "LICENSE-"+name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := licencesIn(c, dir); err != nil || !slices.Equal(names, []string{"GPL-3.0", "MIT"}) {
		t.Errorf("%v, %v", names, err)
	}
}
