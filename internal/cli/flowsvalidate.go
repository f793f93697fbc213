package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"flowlane/internal/cli/flowfile"
	"flowlane/internal/cli/render"
)

// flowsValidate has the server look at flows without storing them.
type flowsValidate struct {
	target
	form

	Paths []string `arg:"" optional:"" name:"path" help:"Files, or folders of *.yaml and *.json files, that hold flows; - is standard input."`
	File  string   `name:"file" short:"f" placeholder:"FILE" help:"One more of them."`
}

// validFacts is what is said of one flow.
type validFacts struct {
	Name     string         `json:"name"`
	File     string         `json:"file"`
	Valid    bool           `json:"valid"`
	Errors   []mistakeFacts `json:"errors"`
	Warnings []string       `json:"warnings"`
}

// mistakeFacts is a mistake and its place in the file, as greet.yaml:12; loc is its place in the flow.
type mistakeFacts struct {
	At  string   `json:"at"`
	Loc []string `json:"loc"`
	Msg string   `json:"msg"`
}

// Run validates. All flows are looked at; the error names every mistake.
func (c *flowsValidate) Run(ctx context.Context, p *process) error {
	if err := c.check(nil); err != nil {
		return err
	}
	paths := c.Paths
	if c.File != "" && !slices.Contains(paths, c.File) {
		paths = append(slices.Clone(paths), c.File)
	}
	if len(paths) == 0 {
		return usageError{errors.New("no flow: name a file, a folder, or - for standard input")}
	}
	files, err := flowfile.Read(paths)
	if err != nil {
		return usageError{err}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	plan, err := newNames(ctx, client)
	if err != nil {
		return err
	}
	list := render.NewList(p.stdout, c.options(p, "name valid file"))
	var mistakes []error
	for _, file := range files {
		facts, found, err := plan.validate(ctx, file)
		if err != nil {
			return err
		}
		mistakes = append(mistakes, found...)
		if c.format() == render.Table && c.Columns == nil {
			for _, warning := range facts.Warnings {
				fmt.Fprintf(p.stderr, "%s: warning: %s\n", facts.File, render.Printable(warning))
			}
		}
		text, err := json.Marshal(facts)
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if err := list.Add(text); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
	}
	if err := list.End(); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	return errors.Join(mistakes...)
}

// validate says what is wrong with a flow of a file.
func (p *flowsPlan) validate(ctx context.Context, file flowfile.File) (validFacts, []error, error) {
	facts := validFacts{Name: file.Flow.Name(), File: file.Path, Errors: []mistakeFacts{}, Warnings: []string{}}
	body, err := p.bodyOf(file)
	if err != nil {
		at, msg, _ := strings.Cut(err.Error(), ": ")
		facts.Errors = append(facts.Errors, mistakeFacts{At: at, Loc: []string{}, Msg: msg})
		return facts, []error{err}, nil
	}
	found, err := p.problemsOf(ctx, file, body)
	if err != nil {
		return facts, nil, err
	}
	for _, e := range found.Errors {
		loc := fieldOf(e)
		facts.Errors = append(facts.Errors, mistakeFacts{At: file.Place(loc...), Loc: loc, Msg: e.Msg})
	}
	facts.Valid, facts.Warnings = len(found.Errors) == 0, append(facts.Warnings, found.Warnings...)
	return facts, found.mistakes(file), nil
}
