package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"

	"flowlane/internal/cli/flowfile"
	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
)

// flowsPlan is what has to be done for the flows of a server to be those of files.
type flowsPlan struct {
	client *remote.Client
	names  map[string]*nameList
	// current are the flows of the server by name; archived ones are not among them.
	current map[string][]serverFlow
	changes []flowChange
}

type serverFlow struct {
	id   string
	flow flowfile.Flow
}

// flowChange is what is done to one flow: create, change, nothing, or delete.
type flowChange struct {
	Name   string `json:"name"`
	Action string `json:"action"`
	File   string `json:"file,omitempty"`
	ID     string `json:"id,omitempty"`
	Diff   string `json:"diff,omitempty"`

	body   flowfile.Flow
	source flowfile.File
}

// The actions of a plan.
const (
	toCreate = "create"
	toChange = "change"
	toKeep   = "unchanged"
	toDelete = "delete"
)

// nameList is the names and ids of one kind of thing.
type nameList struct {
	noun string
	ids  map[string][]string
	name map[string]string
}

// newPlan reads the server.
func newPlan(ctx context.Context, client *remote.Client) (*flowsPlan, error) {
	plan, err := newNames(ctx, client)
	if err != nil {
		return nil, err
	}
	err = each(ctx, client, named["definition_id"].path, nil, func(item json.RawMessage) error {
		var f map[string]any
		d := json.NewDecoder(bytes.NewReader(item))
		d.UseNumber()
		if err := d.Decode(&f); err != nil {
			return fmt.Errorf("the answer is not as documented: %w", err)
		}
		if f["status"] == "archived" {
			return nil
		}
		id, _ := f["id"].(string)
		flow, err := flowfile.Bare(f).Rename(plan.nameOf)
		plan.current[flow.Name()] = append(plan.current[flow.Name()], serverFlow{id: id, flow: flow})
		return err //nolint:wrapcheck // nameOf makes none
	})
	return plan, client.Explain("list the flows", err)
}

// newNames reads the names of the server, and no flows.
func newNames(ctx context.Context, client *remote.Client) (*flowsPlan, error) {
	plan := &flowsPlan{client: client, names: map[string]*nameList{}, current: map[string][]serverFlow{}}
	for field, kind := range map[string]string{flowfile.Credential: "credential_id",
		flowfile.VariableSet: "variable_set_id"} {
		at := named[kind]
		l := &nameList{noun: at.noun, ids: map[string][]string{}, name: map[string]string{}}
		err := each(ctx, client, at.path, nil, func(item json.RawMessage) error {
			var thing struct{ ID, Name string }
			if err := json.Unmarshal(item, &thing); err != nil {
				return fmt.Errorf("the answer is not as documented: %w", err)
			}
			l.ids[thing.Name], l.name[thing.ID] = append(l.ids[thing.Name], thing.ID), thing.Name
			return nil
		})
		if err != nil {
			return nil, client.Explain("list the "+at.noun, err)
		}
		plan.names[field] = l
	}
	return plan, nil
}

// nameOf returns a name in place of an id where exactly one thing has it.
func (p *flowsPlan) nameOf(field, id string) (string, error) {
	l := p.names[field]
	if name, ok := l.name[id]; ok && len(l.ids[name]) == 1 && !anID.MatchString(name) {
		return name, nil
	}
	return id, nil
}

// idOf is the way back.
func (p *flowsPlan) idOf(field, text string) (string, error) {
	l := p.names[field]
	if _, ok := l.name[text]; ok || anID.MatchString(text) {
		return text, nil
	}
	switch ids := l.ids[text]; len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", notFoundError{fmt.Errorf("%s: there is no %q; `flowlane %s list` shows what there is", field, text,
			l.noun)}
	default:
		return "", usageError{fmt.Errorf("%s: %d have the name %q: give the id, one of %s", field, len(ids), text,
			strings.Join(ids, ", "))}
	}
}

// bodyOf is the flow of a file as the API takes it. The error names file and line.
func (p *flowsPlan) bodyOf(file flowfile.File) (flowfile.Flow, error) {
	return file.Flow.Rename(func(field, text string) (string, error) { //nolint:wrapcheck // names file and line
		id, err := p.idOf(field, text)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file.PlaceOf(field, text), err)
		}
		return id, nil
	})
}

// add plans what makes the flow of a file out of that of the server.
func (p *flowsPlan) add(file flowfile.File) error {
	name := file.Flow.Name()
	at := p.current[name]
	if len(at) > 1 {
		return usageError{fmt.Errorf("%s: %d flows of the server have the name %q: rename or delete the others",
			file.Place("name"), len(at), name)}
	}
	change := flowChange{Name: name, Action: toCreate, File: file.Path, source: file}
	var old flowfile.Flow
	if len(at) == 1 {
		change.Action, change.ID, old = toChange, at[0].id, at[0].flow
	}
	body, err := p.bodyOf(file)
	if err != nil {
		return err
	}
	change.body = body
	wanted, err := body.Rename(p.nameOf)
	if err != nil {
		return err //nolint:wrapcheck // nameOf makes none
	}
	if change.Diff, err = flowfile.Diff(old, wanted); err != nil {
		return err //nolint:wrapcheck // names the flow
	}
	if change.Diff == "" {
		change.Action = toKeep
	}
	p.changes = append(p.changes, change)
	return nil
}

// prune plans to delete what no file names.
func (p *flowsPlan) prune() {
	names := map[string]bool{}
	for _, c := range p.changes {
		names[c.Name] = true
	}
	for name, flows := range p.current {
		for _, f := range flows {
			if !names[name] {
				p.changes = append(p.changes, flowChange{Name: name, Action: toDelete, ID: f.id})
			}
		}
	}
	slices.SortStableFunc(p.changes, func(a, b flowChange) int { return strings.Compare(a.Name, b.Name) })
}

// planOf reads files and server, and plans.
func planOf(ctx context.Context, client *remote.Client, paths []string, prune bool) (*flowsPlan, error) {
	files, err := flowfile.Read(paths)
	if err != nil {
		return nil, usageError{err}
	}
	plan, err := newPlan(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := plan.add(f); err != nil {
			return nil, err
		}
	}
	if prune {
		plan.prune()
	}
	return plan, nil
}

func (p *flowsPlan) count(action string) (n int) {
	for _, c := range p.changes {
		if c.Action == action {
			n++
		}
	}
	return n
}

func (p *flowsPlan) idle() bool { return p.count(toKeep) == len(p.changes) }

// show prints a plan for a person.
func (p *flowsPlan) show(w io.Writer, color bool) {
	for _, c := range p.changes {
		switch c.Action {
		case toKeep:
		case toDelete:
			fmt.Fprintf(w, "%s %s\n", c.Action, render.Printable(c.Name))
		default:
			fmt.Fprintf(w, "%s %s (%s)\n", c.Action, render.Printable(c.Name), c.File)
			for line := range strings.Lines(c.Diff) {
				line = render.Printable(strings.TrimRight(line, "\n"))
				code := ""
				switch {
				case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
					continue
				case strings.HasPrefix(line, "+"):
					code = "32"
				case strings.HasPrefix(line, "-"):
					code = "31"
				}
				fmt.Fprintln(w, "  "+render.Paint(color, code, line))
			}
		}
	}
	fmt.Fprintf(w, "%d to create, %d to change, %d to delete, %d unchanged.\n",
		p.count(toCreate), p.count(toChange), p.count(toDelete), p.count(toKeep))
}

// carryOut makes the changes.
func (p *flowsPlan) carryOut(ctx context.Context, done func(flowChange, map[string]any)) error {
	for _, c := range p.changes {
		r := remote.Request{Path: "/flows/definitions/" + url.PathEscape(c.ID), Repeat: true}
		switch c.Action {
		case toKeep:
			continue
		case toDelete:
			r.Method = http.MethodDelete
		case toCreate:
			// A name of the request that stays the same would replay a flow that was deleted meanwhile.
			r.Method, r.Path, r.Repeat = http.MethodPost, "/flows/definitions", false
		case toChange:
			r.Method = http.MethodPut
		}
		if c.body != nil {
			text, err := json.Marshal(c.body)
			if err != nil {
				return fmt.Errorf("flow %s: %w", c.Name, err)
			}
			r.Body = text
		}
		var answer map[string]any
		var err error
		if r.Method == http.MethodDelete {
			err = discard(ctx, p.client, r)
		} else {
			answer, err = object(ctx, p.client, r)
		}
		if err != nil {
			return p.client.Explain(c.Action+" the flow "+c.Name, err)
		}
		done(c, answer)
	}
	return nil
}

// discard makes a request whose answer does not matter.
func discard(ctx context.Context, client *remote.Client, r remote.Request) error {
	res, err := client.Send(ctx, r)
	if err != nil {
		return err //nolint:wrapcheck // Explain knows it
	}
	return res.Body.Close() //nolint:wrapcheck // cannot matter
}

// flowsDiff shows what flows apply would do.
type flowsDiff struct {
	target
	output

	Paths []string `arg:"" name:"path" help:"Files, or folders of *.yaml and *.json files, that hold flows; - is standard input."`
	Prune bool     `help:"Also what --prune would delete."`
}

// Run compares.
func (c *flowsDiff) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	plan, err := planOf(ctx, client, c.Paths, c.Prune)
	if err != nil {
		return err
	}
	if err := c.print(p, plan.changes, func(w io.Writer) { plan.show(w, colored(p)) }); err != nil || plan.idle() {
		return err
	}
	return unwellError{errors.New("the flows of the server differ; `flowlane flows apply` makes them equal")}
}

// flowsApply makes the flows of the server those of files.
type flowsApply struct {
	target
	output

	Paths []string `arg:"" name:"path" help:"Files, or folders of *.yaml and *.json files, that hold flows; - is standard input."`
	Prune bool     `help:"Delete the flows of the organization that no file names."`
	Yes   bool     `short:"y" help:"Do not ask before flows are deleted."`
}

// Run applies. What is equal stays as it is, so that the same command again does nothing.
func (c *flowsApply) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	plan, err := planOf(ctx, client, c.Paths, c.Prune)
	if err != nil {
		return err
	}
	if err := plan.check(ctx); err != nil {
		return err
	}
	if plan.count(toDelete) > 0 && !c.Yes {
		plan.show(p.stderr, false)
		if err := confirm(p, "Do this?"); err != nil {
			return err
		}
	}
	err = plan.carryOut(ctx, func(change flowChange, answer map[string]any) {
		if c.JSON {
			return
		}
		if version := answer["version"]; version != nil {
			fmt.Fprintf(p.stdout, "%sd %s, version %v\n", change.Action, render.Printable(change.Name), version)
			return
		}
		fmt.Fprintf(p.stdout, "%sd %s\n", change.Action, render.Printable(change.Name))
	})
	if err != nil {
		return err
	}
	return c.print(p, plan.changes, func(w io.Writer) {
		if n := plan.count(toKeep); n > 0 {
			fmt.Fprintf(w, "%d unchanged\n", n)
		}
	})
}

// confirm asks a person; where there is none, --yes has to say it.
func confirm(p *process, question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) { //nolint:gosec // a small number
		return usageError{errors.New("nobody is there to ask: say --yes")}
	}
	fmt.Fprintf(p.stderr, "%s [y/N] ", question)
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // nothing is no
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

// flowsExport writes flows as files that flows apply takes.
type flowsExport struct {
	target

	Flows []string `arg:"" optional:"" name:"flow" help:"Names of flows; all that are not archived by default."`
	Dir   string   `type:"path" placeholder:"DIR" help:"Write a file for each into this folder. Default: to standard output."`
}

// Run exports.
func (c *flowsExport) Run(ctx context.Context, p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	plan, err := newPlan(ctx, client)
	if err != nil {
		return err
	}
	names := c.Flows
	if len(names) == 0 {
		for name := range plan.current {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	if c.Dir != "" {
		if err := os.MkdirAll(c.Dir, 0o750); err != nil {
			return err //nolint:wrapcheck // names the folder
		}
	}
	var written []string
	for i, name := range names {
		switch n := len(plan.current[name]); {
		case n == 0:
			return notFoundError{fmt.Errorf("no flow has the name %q; `flowlane flows list` shows them", name)}
		case n > 1:
			return usageError{fmt.Errorf("%d flows have the name %q: rename or delete the others", n, name)}
		}
		text, err := plan.current[name][0].flow.YAML()
		if err != nil {
			return err //nolint:wrapcheck // names the flow
		}
		if c.Dir == "" {
			if i > 0 {
				text = "---\n" + text
			}
			if _, err := io.WriteString(p.stdout, text); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			continue
		}
		path := filepath.Join(c.Dir, fileName(name)+".yaml")
		if slices.Contains(written, path) {
			return usageError{fmt.Errorf("two flows would stand in %s: export them by their names, without --dir",
				path)}
		}
		written = append(written, path)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // flows hold no secret
			return err //nolint:wrapcheck // names the file
		}
		fmt.Fprintln(p.stdout, path)
	}
	return nil
}

// fileName makes a name of a file of any name: what may mean something to a file system becomes a dash.
func fileName(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) || r < ' ' {
			return '-'
		}
		return r
	}, name), ". ")
}
