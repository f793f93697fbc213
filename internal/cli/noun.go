package cli

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"flowlane"
	"flowlane/internal/cli/apidoc"
)

// noun is a kind of thing, and what can be done with it. Most verbs are an operation of the API: arguments and flags
// come from its parameters and its body as openapi.yaml has them. A verb that needs more is a command made by hand.
type noun struct {
	name, help string
	// alias is an older name, empty for none.
	alias string
	verbs []verb
}

// verb is one command of a noun.
type verb struct {
	name string
	// operation is the operationId of what it does; columns are those of the table that it prints.
	operation string
	columns   string
	// newest says that the list begins with what came last, unless it is told otherwise; nothing is said where it is
	// empty.
	newest  bool
	nothing string
	// command is a pointer to a command made by hand, with help of its own; it stands for operation, which may be
	// empty.
	command any
	help    string
}

// The flags of every verb; no parameter may have their names.
type verbFlags struct {
	target
	form
}

// field is one argument or flag of a verb: where its value goes in the request.
type field struct {
	in   string // path, query, header or body
	name string
	kind apidoc.Kind
	// choices are the values that are allowed; all where there are none.
	choices []string
	// at is the index of its value in the struct of the command.
	at int
}

// action is a verb as it can be run.
type action struct {
	verb

	doc    *apidoc.Document
	op     *apidoc.Operation
	fields []field
	// list says that the answer comes in pages.
	list bool
	// keyed says that a request may have a name, with which it is done once.
	keyed bool
	// none is said where there is nothing to list.
	none string
	// shape is the struct that arguments are parsed into.
	shape reflect.Type
}

// idempotencyKey is the header with the name of a request.
const idempotencyKey = "Idempotency-Key"

// choicesTag holds the values that a flag may have, for the completion of shells.
const choicesTag = "choices"

// Names of fields of shapes.
const (
	shapeFlags = "Flags"
	shapeFile  = "File"
	shapeLimit = "Limit"
	shapeAll   = "All"
	shapeKey   = "IdempotencyKey"
)

// asked tells of which nouns a command line needs the verbs that the document describes: of the one that it begins
// with, of none where it begins with another command, else of all. To read the document and to make flags of it takes
// most of the time of a command that does little else.
func asked(args []string) func(n noun) bool {
	first := func(n noun) bool { return slices.Contains([]string{n.name, n.alias}, args[0]) }
	command := func(f reflect.StructField) bool { return strings.EqualFold(f.Name, args[0]) }
	if len(args) > 0 && (slices.ContainsFunc(nouns(), first) ||
		slices.ContainsFunc(reflect.VisibleFields(reflect.TypeFor[commands]()), command)) {
		return first
	}
	return func(noun) bool { return true }
}

// grammar makes the commands of the nouns, as far as a command line needs them, and all for an empty one. The actions
// are by "NOUN VERB".
func grammar(nouns []noun, args []string) (options []kong.Option, actions map[string]*action, err error) {
	read := sync.OnceValues(func() (*apidoc.Document, error) { return apidoc.Read(flowlane.OpenAPI) })
	actions, needed := map[string]*action{}, asked(args)
	for _, n := range nouns {
		var fields []reflect.StructField
		byHand := map[int]any{}
		for i, v := range n.verbs {
			f := reflect.StructField{Name: "V" + strconv.Itoa(i)}
			switch {
			case v.command != nil:
				byHand[len(fields)], f.Type = v.command, reflect.TypeOf(v.command)
			case !needed(n):
				continue
			default:
				doc, err := read()
				if err != nil {
					return nil, nil, err //nolint:wrapcheck // says what it is about
				}
				a := newAction(doc, v)
				if a.op == nil {
					return nil, nil, fmt.Errorf("%s %s: the API has no operation %q", n.name, v.name, v.operation)
				}
				actions[n.name+" "+v.name], f.Type, a.none = a, a.shape, n.none(v)
				if v.help == "" {
					v.help = a.op.Summary
				}
			}
			f.Tag = tag("cmd", "", "name", v.name, "help", strings.TrimSuffix(v.help, ".")+".")
			fields = append(fields, f)
		}
		made := reflect.New(reflect.StructOf(fields))
		for i, c := range byHand {
			made.Elem().Field(i).Set(reflect.ValueOf(c))
		}
		options = append(options, kong.DynamicCommand(n.name, n.help, groupWork, made.Interface(),
			string(tag("aliases", n.alias))))
	}
	return options, actions, nil
}

// makes says by which command the first thing of a list comes, where that is not the verb create of its noun.
var makes = map[string]string{
	"batches list": "run FLOW FILE", "jobs list": "run FLOW FILE", "executions list": "run FLOW FILE",
	"triggers list": "run FLOW FILE",
	"records list":  "records upload FILE", "flows list": "flows create --file FILE",
}

// none is said of an empty list: how something comes into it, where that is for a command.
func (n noun) none(v verb) string {
	if v.nothing != "" {
		return v.nothing
	}
	at := n.name + " " + v.name
	by := makes[at]
	if by == "" && v.name == "list" && slices.ContainsFunc(n.verbs, func(v verb) bool { return v.name == "create" }) {
		by = n.name + " create"
	}
	if by == "" {
		return "None."
	}
	return "None that fits: `flowlane " + by + "` makes one."
}

// newAction makes the shape of a verb from its operation.
func newAction(doc *apidoc.Document, v verb) *action {
	a := &action{verb: v, doc: doc, op: doc.Operation(v.operation)}
	if a.op == nil {
		return a
	}
	shape := []reflect.StructField{{Name: shapeFlags, Type: reflect.TypeFor[verbFlags](), Tag: tag("embed", "")}}
	add := func(f field, description string, s *apidoc.Schema) {
		f.at, f.kind, f.choices = len(shape), doc.Kind(s), doc.Choices(s)
		shape = append(shape, f.shape(description))
		a.fields = append(a.fields, f)
	}
	for _, p := range a.op.Params {
		switch {
		case p.Name == "cursor":
			a.list = true
		case p.Name == idempotencyKey:
			a.keyed = true
		case p.Name == "limit", p.Name == "skip", p.Name == "format", p.In == "header":
		case p.Name == "order" && v.newest:
			add(field{in: p.In, name: p.Name}, p.Description+" Default here: desc.", p.Schema)
		default:
			add(field{in: p.In, name: p.Name}, p.Description, p.Schema)
		}
	}
	for _, p := range doc.Fields(a.op.Body) {
		add(field{in: "body", name: p.Name}, p.Schema.Description, p.Schema)
	}
	if a.op.Body != nil {
		shape = append(shape, reflect.StructField{Name: shapeFile, Type: reflect.TypeFor[string](),
			Tag: tag("name", "file",
				"short", "f", "placeholder", "FILE", "help",
				"What to send, as YAML or JSON; - is standard input. Flags go before it.")})
	}
	if a.keyed {
		shape = append(shape, reflect.StructField{Name: shapeKey, Type: reflect.TypeFor[string](),
			Tag: tag("name", "idempotency-key", "placeholder", "KEY", "help",
				"Name of this request: it is done once, however often it is sent with it. Default: a new one.")})
	}
	if a.list {
		shape = append(shape,
			reflect.StructField{Name: shapeLimit, Type: reflect.TypeFor[int](), Tag: tag("name", "limit", "default",
				"50",
				"help", "The most to print.")},
			reflect.StructField{Name: shapeAll, Type: reflect.TypeFor[bool](), Tag: tag("name", "all", "help",
				"Print all.")})
	}
	if v.newest {
		at := slices.IndexFunc(a.fields, func(f field) bool { return f.name == "order" })
		f := &shape[a.fields[at].at]
		f.Tag += " " + tag("default", "desc")
	}
	a.shape = reflect.StructOf(shape)
	return a
}

// shape is the field of the struct that a value is parsed into.
func (f field) shape(description string) reflect.StructField {
	out := reflect.StructField{Name: "F" + strconv.Itoa(f.at), Type: reflect.TypeFor[*string]()}
	help := sentences(description)
	if f.in == "path" {
		out.Type = reflect.TypeFor[string]()
		out.Tag = tag("arg", "", "name", argument(f.name), "help", help)
		return out
	}
	if len(f.choices) > 0 {
		help += " One of: " + strings.Join(f.choices, ", ") + "."
	}
	placeholder := "TEXT"
	switch f.kind {
	case apidoc.Number:
		placeholder = "N"
	case apidoc.Boolean:
		out.Type, placeholder = reflect.TypeFor[*bool](), ""
	case apidoc.List:
		out.Type, placeholder = reflect.TypeFor[[]string](), "TEXT"
	case apidoc.JSON:
		placeholder = "JSON"
		help += " JSON or YAML; @FILE reads it from a file, @- from standard input."
	}
	tags := []string{"name", flagName(f.name), "help", strings.TrimSpace(help), choicesTag, strings.Join(f.choices,
		",")}
	if placeholder != "" {
		tags = append(tags, "placeholder", placeholder)
	} else {
		tags = append(tags, "negatable", "")
	}
	out.Tag = tag(tags...)
	return out
}

// argument names a positional argument: definition_id is a FLOW to people.
func argument(name string) string {
	name = strings.TrimSuffix(name, "_id")
	switch name {
	case "definition":
		name = "flow"
	case "tenancy":
		name = "account"
	}
	return strings.ReplaceAll(name, "_", "-")
}

func flagName(name string) string {
	switch name {
	case "definition_id":
		return "flow"
	case "tenancy_id":
		return "account"
	}
	return strings.ReplaceAll(name, "_", "-")
}

// maxHelp bounds what of a description stands in the help of a flag.
const maxHelp = 160

// sentences returns the beginning of a description: whole sentences as far as there is room, at least one.
func sentences(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "'")), " ")
	if len(text) <= maxHelp {
		return text
	}
	end := strings.Index(text, ". ")
	if end < 0 {
		return text
	}
	for {
		next := strings.Index(text[end+1:], ". ")
		if next < 0 || end+1+next > maxHelp {
			return text[:end+1]
		}
		end += 1 + next
	}
}

// tag writes a struct tag of names and values.
func tag(pairs ...string) reflect.StructTag {
	var out strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&out, "%s:%s ", pairs[i], strconv.Quote(strings.ReplaceAll(pairs[i+1], "${", "$${")))
	}
	return reflect.StructTag(strings.TrimSpace(out.String()))
}

// run carries out the verb that the command line selected; ok is false where that is a command made by hand.
func runAction(ctx context.Context, p *process, actions map[string]*action, node *kong.Node) (ok bool, err error) {
	if node == nil || node.Parent == nil {
		return false, nil
	}
	a := actions[node.Parent.Name+" "+node.Name]
	if a == nil {
		return false, nil
	}
	return true, a.run(ctx, p, node.Target)
}
