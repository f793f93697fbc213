package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/licenseclassifier/v2/assets"
)

func TestRules(t *testing.T) {
	t.Parallel()
	r := rules{Allowed: []string{"MIT", "ISC"}, Known: map[string]string{"odd": "ISC"}}
	for expression, want := range map[string]bool{
		"MIT": true, "(MIT OR GPL-3.0)": true, "GPL-3.0 OR ISC": true, "MIT AND ISC": true, "MIT AND GPL-3.0": false,
		"GPL-3.0": false,
		"mit":     false, "MIT OR (ISC AND GPL-3.0)": false, "": false, "SEE LICENSE IN x": false,
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
	// What says under which licence something is stands for none: the text of the licence must be there.
	notice, err := assets.ReadLicenseFile("Header/Apache-2.0/header.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "LICENSE.notice"), notice, 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := licencesIn(c, dir); err != nil || !slices.Equal(names, []string{"GPL-3.0", "MIT"}) {
		t.Errorf("%v, %v", names, err)
	}
}

// TestLicences: every part of the program and of the client is checked.
func TestLicences(t *testing.T) {
	t.Chdir("../..")
	before := rulesText
	t.Cleanup(func() { rulesText = before })
	rulesText = []byte(`{"allowed": []}`)
	err := licences(t.Context())
	if err == nil {
		t.Fatal("nothing is allowed, and all is well")
	}
	for _, part := range []string{"github.com/google/uuid: BSD-3-Clause", "npm:typescript: Apache-2.0"} {
		if !strings.Contains(err.Error(), part+" is not allowed") {
			t.Errorf("%s is not named: %v", part, err)
		}
	}
}
