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
			return usageError{fmt.Errorf("%s: flow %s: delete the file and apply with --prune in place of archiving it here",
				c.source.Place("status"), c.Name)}
		}
		text, err := json.Marshal(c.body)
		if err != nil {
			return usageError{fmt.Errorf("%s: flow %s: names of fields must be texts: %w", c.File, c.Name, err)}
		}
		found, err := p.validate(ctx, text)
		var answer *remote.AnswerError
		switch {
		case errors.As(err, &answer) && len(answer.Entries) > 0:
			found = answer.Entries
		case err != nil:
			mistakes = append(mistakes, p.client.Explain(c.File+": flow "+c.Name, err))
		}
		for _, e := range found {
			mistakes = append(mistakes, mistakeOf(c.source, e))
		}
	}
	if len(mistakes) > 0 {
		return fmt.Errorf("%w\n%s", errors.Join(mistakes...), nothingChanged)
	}
	return nil
}

// validate asks the server what is wrong with a flow that has the form of one.
func (p *flowsPlan) validate(ctx context.Context, text []byte) ([]remote.Entry, error) {
	said, err := remote.Ask[struct{ Errors []remote.Entry }](ctx, p.client, remote.Request{
		Method: http.MethodPost, Path: "/flows/definitions/validate", Body: text, Repeat: true,
	}, nil)
	return said.Errors, err //nolint:wrapcheck // check explains it
}

// mistakeOf is a bad field of a flow, where it stands in the file.
func mistakeOf(file flowfile.File, e remote.Entry) error {
	loc := e.Loc
	if len(loc) > 0 && loc[0] == "body" {
		loc = loc[1:]
	}
	return invalidError{what: file.Place(loc...), says: strings.TrimPrefix(strings.Join(loc, ".")+": "+e.Msg, ": ")}
}

// invalidError is a flow that the server would refuse.
type invalidError struct{ what, says string }

func (e invalidError) Error() string { return e.what + ": " + strings.TrimSpace(e.says) }
