// Package expr owns {{ }} templates: it compiles a JSON value whose strings may hold expressions, lists every bad
// expression at once, and renders the value for a record within fixed bounds of time and memory.
//
// It promises three things. A value that is only passed through (a path, a whole object, an interpolated field) keeps
// its bytes, so numbers keep their digits. Rendering the same template twice with the same inputs gives the same bytes:
// no clock, no randomness, nothing outside Env. And no template, however hostile, runs away: every step of an
// evaluation is paid from a fixed allowance.
//
// The grammar is that of github.com/expr-lang/expr, whose parser is used. Its virtual machine is not: it counts neither
// steps nor the bytes of strings, cannot be stopped, and has no numbers beyond float64. The syntax tree is compiled to
// closures of our own instead (compile.go), and paths, which are nearly all expressions, to spans of the raw record
// that one scan finds (path.go, scan.go).
//
// It must not know steps, records or batches beyond the names in Scope.
package expr

import (
	"encoding/json"
	"fmt"
	"strings"

	"flowlane/internal/schema"
)

// Bounds of one template and one evaluation.
const (
	// MaxSource is the longest expression in bytes.
	MaxSource = 4096
	// MaxExpressions is how many expressions one JSON value may hold.
	MaxExpressions = 1000
	// maxDepth is how deep a template's JSON value, and the brackets of one expression, may nest.
	maxDepth = 64
	// MaxResult is the size in bytes of one rendered value, and of any string made on the way to it.
	MaxResult = 1 << 20
	// maxShown is how many bytes of a bad expression its error repeats.
	maxShown = 500
	// maxNodes bounds the compiled size of one expression.
	maxNodes = 10000
	// maxFuel is what one rendering may spend: a unit for each step and each element, and one for every 16 bytes of
	// text.
	maxFuel = 1 << 20
	// maxElementsFuel is what the renderings for all elements of a List may spend together.
	maxElementsFuel = 8 * maxFuel
	// maxDataDepth bounds the nesting of data; deeper records are an error instead of a deep stack.
	maxDataDepth = 512
)

// Scope says what may be referred to where the template stands.
type Scope struct {
	Input, Metadata, Vars, Batch, Payload bool
	// VarKeys are the keys that vars has; nil where that is not known.
	VarKeys []string
	// InputShape is what is known of the input, ItemShape of the element: a name that they cannot have is an error.
	InputShape, ItemShape schema.Shape
	// Item: the template stands in a task with for_each, and sees `item` and `index`.
	Item bool
	// Event: the template is the condition of a task that waits for an event, and sees `event`.
	Event bool
	// Params, Call and Reference stand in the catalog's templates only.
	Params, Call, Reference bool
	// Answer stands in the conditions that tell answers apart only.
	Answer bool
	// Constants is what the constant expressions of several values may spend together; where it is nil, each value has
	// an allowance of its own.
	Constants *Allowance
	// Steps maps the id of each earlier step to its tasks, whose results are visible.
	Steps map[string][]string
	// Continues reports whether a record goes on behind a failure of a task of an earlier step, so that its error can
	// be read; nil where that is not known.
	Continues func(step, task string) bool
	// AllSteps maps every step of the definition to its tasks, to tell a later step from an unknown one; may be nil.
	AllSteps map[string][]string
}

// Allowance is what constant expressions, which are evaluated once, when they are compiled, may spend together: as
// much as one evaluation. It is not safe for concurrent use.
type Allowance struct{ spent int }

// Error is one bad expression of a template.
type Error struct {
	// Path is the place of the string in the JSON value, for example ["row", "phone"] or ["items", "0"].
	Path []string
	// Expression is the text between the braces, trimmed; "" if the value as a whole is at fault.
	Expression string
	// Msg says what is wrong and, where it can, what would be right.
	Msg string
	// Character is where in Expression, counted from 1; 0 where the whole is at fault.
	Character int
}

func (e Error) Error() string {
	if e.Expression == "" {
		return e.Msg
	}
	return fmt.Sprintf("{{ %s }}: %s", e.shown(), e.Msg)
}

// shown is the expression as far as it is sent back.
func (e Error) shown() string {
	if len(e.Expression) <= maxShown {
		return e.Expression
	}
	return strings.ToValidUTF8(e.Expression[:maxShown], "") + "..."
}

// Ctx is what programs want to know: the beginning of the expression, and the offset of what is wrong in it, in
// characters from 0.
func (e Error) Ctx() map[string]any {
	if e.Expression == "" {
		return nil
	}
	ctx := map[string]any{"expression": e.shown()}
	if e.Character > 0 {
		ctx["offset"] = e.Character - 1
	}
	return ctx
}

// EvalError is an expression that has no value for this record: a wrong type, a division by zero, a bound reached. Its
// text names the expression and types, never values of the record.
type EvalError struct {
	// Expression is the text between the braces; "" if a document of Env is not valid JSON.
	Expression string
	Msg        string
}

func (e *EvalError) Error() string { return Error{Expression: e.Expression, Msg: e.Msg}.Error() }

// Env is what one evaluation can see. Everything is raw JSON and nil reads as null. What is only partly used is checked
// while it is read; a value that is used whole is passed on unread, so it must be valid.
type Env struct {
	Input, Metadata, Vars, Batch, Payload json.RawMessage
	// Item is the element that a task with for_each is at, Index its number, from 0.
	Item, Index json.RawMessage
	// Event is the event that a task may wait for.
	Event json.RawMessage
	// Params are those of a call, Call is what is known of one, Reference is the provider's name of it.
	Params, Call, Reference json.RawMessage
	// Answer is what came back of a call: an object of status, headers (by names in lower case), body and
	// the fault of SOAP.
	Answer json.RawMessage
	// Result returns a result of a task of an earlier step, nil for null. It is called once per rendering for each that
	// the template names, and may itself be nil where no step is visible.
	Result func(TaskRef) json.RawMessage

	// shared is what all renderings for the elements of a List have in common; nil elsewhere.
	shared *shared
}

// TaskRef names a result of a task of an earlier step.
type TaskRef struct {
	Step, Task string
	// Of is OfOutput, OfError or OfSkipped.
	Of string
}

// The results of a task: what it gave, why it failed (an object with the members of errorFields, null where it did
// not), and whether it was left out by its condition.
const (
	OfOutput  = "output"
	OfError   = "error"
	OfSkipped = "skipped"
)

var (
	taskResults  = []string{OfOutput, OfError, OfSkipped}
	answerFields = []string{"status", "headers", "body", "fault"}
	errorFields  = []string{"code", "message", "status", "provider_code", "provider_message", "body"}
)

// Refs is what a template refers to.
type Refs struct {
	// Input is true if any part of the input is used.
	Input bool
	// Fields are the top-level fields of the input that are used, in order of first use; nil if the input is also used
	// as a whole (or not at all).
	Fields []string
	// Tasks are the results of earlier tasks that are used, in order of first use.
	Tasks []TaskRef

	Metadata, Vars, Batch, Payload bool
	// Item is true if the element or its number is used.
	Item bool
	// VarKeys are the keys of vars that are named, in order of first use.
	VarKeys []string
}
