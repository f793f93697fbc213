package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"flowlane/internal/cli/flowfile"
	"flowlane/internal/cli/remote"
)

// nothingChanged is the last line where a flow of several is refused.
const nothingChanged = "Nothing was changed."

// check has the server look at every flow before any is changed. The error names file and line of each mistake.
func (p *flowsPlan) check(ctx context.Context) error {
	var mistakes []error
	for _, c := range p.changes {
		if c.body == nil || c.Action == toKeep {
			continue
		}
		if c.body["status"] == "archived" {
			return usageError{fmt.Errorf(
				"%s: flow %s: delete the file and apply with --prune in place of archiving it here",
				c.source.Place("status"), c.Name)}
		}
		found, err := p.problemsOf(ctx, c.source, c.body)
		mistakes = append(mistakes, append(found.mistakes(c.source), err)...)
	}
	if err := errors.Join(mistakes...); err != nil {
		return fmt.Errorf("%w\n%s", err, nothingChanged)
	}
	return nil
}

// validation is what the server says of a flow.
type validation struct {
	Errors   []remote.Entry
	Warnings []string
}

// problemsOf asks the server what is wrong with a flow.
func (p *flowsPlan) problemsOf(ctx context.Context, source flowfile.File, body flowfile.Flow) (validation, error) {
	what := source.Path + ": flow " + source.Flow.Name()
	text, err := json.Marshal(body)
	if err != nil {
		return validation{}, usageError{fmt.Errorf("%s: names of fields must be texts: %w", what, err)}
	}
	found, err := remote.Call[validation](ctx, p.client, remote.Request{
		Method: http.MethodPost, Path: "/flows/definitions/validate", Body: text, Repeat: true,
	}, nil)
	if answer := (*remote.AnswerError)(nil); errors.As(err, &answer) && len(answer.Entries) > 0 {
		return validation{Errors: answer.Entries}, nil
	}
	return found, p.client.Explain(what, err)
}

// mistakes are the bad fields of a flow, where they stand in its file.
func (l validation) mistakes(source flowfile.File) []error {
	out := make([]error, len(l.Errors))
	for i, e := range l.Errors {
		out[i] = mistakeOf(source, e)
	}
	return out
}

// mistakeOf is a bad field of a flow, where it stands in the file.
func mistakeOf(file flowfile.File, e remote.Entry) error {
	loc := fieldOf(e)
	return invalidError{what: file.Place(loc...), says: strings.TrimPrefix(strings.Join(loc, ".")+": "+e.Msg, ": ")}
}

// fieldOf is the place of a bad field in the flow.
func fieldOf(e remote.Entry) []string {
	if len(e.Loc) > 0 && e.Loc[0] == "body" {
		return e.Loc[1:]
	}
	return e.Loc
}

// invalidError is a flow that the server would refuse.
type invalidError struct{ what, says string }

func (e invalidError) Error() string { return e.what + ": " + strings.TrimSpace(e.says) }
