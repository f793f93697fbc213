package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// program is the package of the program, lockFile what the TypeScript client is built with.
const (
	program  = "./cmd/flowlane"
	lockFile = "sdk/typescript/package-lock.json"
)

//go:embed licences.json
var rulesText []byte

// rules says which licences are allowed, by their SPDX names, and what people found out about parts whose licence
// cannot be read.
type rules struct {
	Allowed []string
	// Known maps a part, as it is reported, to its licence.
	Known map[string]string
}

func readRules() (r rules, err error) {
	if err := json.Unmarshal(rulesText, &r); err != nil {
		return r, fmt.Errorf("read licences.json: %w", err)
	}
	return r, nil
}

// allows reports whether an SPDX expression is allowed: one of what OR joins, and all of what AND joins.
func (r rules) allows(expression string) bool {
	expression = strings.TrimSpace(expression)
	for strings.HasPrefix(expression, "(") && strings.HasSuffix(expression, ")") && strings.Count(expression,
		"(") == 1 {
		expression = strings.TrimSpace(expression[1 : len(expression)-1])
	}
	if strings.ContainsAny(expression, "()") {
		return false // nobody needs it yet
	}
	return slices.ContainsFunc(strings.Split(expression, " OR "), func(choice string) bool {
		return !slices.ContainsFunc(strings.Split(choice, " AND "), func(name string) bool {
			return !slices.Contains(r.Allowed, strings.TrimSpace(name))
		})
	})
}

// part is something that the program or the client is made of.
type part struct{ name, licence string }

// licences checks all parts, and names each that is not allowed.
func licences(ctx context.Context) error {
	r, err := readRules()
	if err != nil {
		return err
	}
	modules, err := modulesOf(ctx, program)
	if err != nil {
		return err
	}
	parts, err := licencesOf(modules)
	if err != nil {
		return err
	}
	packages, err := packagesOf(lockFile)
	if err != nil {
		return err
	}
	if bad := r.refused(append(parts, packages...)); len(bad) > 0 {
		return fmt.Errorf("%s\nEither do without, or add what was found out to tools/supply/licences.json",
			strings.Join(bad, "\n"))
	}
	fmt.Printf("The licences of %d Go modules and %d npm packages are allowed.\n", len(parts), len(packages))
	return nil
}

// refused lists the parts that are not allowed, with why.
func (r rules) refused(parts []part) (bad []string) {
	for _, p := range parts {
		licence := p.licence
		if known, ok := r.Known[p.name]; ok {
			licence = known
		}
		switch {
		case licence == "":
			bad = append(bad, p.name+": no licence was recognized")
		case !r.allows(licence):
			bad = append(bad, p.name+": "+licence+" is not allowed")
		}
	}
	return bad
}

// module is a Go module in the module cache.
type module struct{ Path, Version, Dir string }

// modulesOf returns the modules whose packages a program is built of, without its own and the standard library.
func modulesOf(ctx context.Context, pkg string) (out []module, err error) {
	const line = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", line, pkg)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules of %s: %w", pkg, err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(words) == 3 {
			out = append(out, module{words[0], words[1], words[2]})
		}
	}
	slices.SortFunc(out, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(out), nil
}

// licenceFile is how files with a licence are named.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([.-].*)?$`)

// licencesOf reads the licence files in the roots of modules.
func licencesOf(modules []module) ([]part, error) {
	c, err := assets.DefaultClassifier()
	if err != nil {
		return nil, fmt.Errorf("load the texts of licences: %w", err)
	}
	out := make([]part, len(modules))
	for i, m := range modules {
		names, err := licencesIn(c, m.Dir)
		if err != nil {
			return nil, err
		}
		out[i] = part{m.Path, strings.Join(names, " AND ")}
	}
	return out, nil
}

// licencesIn returns the names of all licences in the licence files of a folder.
func licencesIn(c *classifier.Classifier, dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for licences: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a licence: %w", err)
		}
		for _, match := range c.Match(text).Matches {
			if match.MatchType == "License" {
				names = append(names, match.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// packagesOf reads the packages of a package-lock.json, which names the licence of each.
func packagesOf(file string) (out []part, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the npm packages: %w", err)
	}
	var lock struct {
		Packages map[string]struct{ Version, License string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	for place, p := range lock.Packages {
		if _, name, ok := strings.Cut(place, "node_modules/"); ok {
			out = append(out, part{"npm:" + name, p.License})
		}
	}
	if len(out) == 0 {
		return nil, errors.New(file + " names no packages")
	}
	slices.SortFunc(out, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return out, nil
}
