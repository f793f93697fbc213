package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"flowlane/internal/cli/render"
)

// catalogSearch lists the actions of the catalog that have all of some words in id, name or
// description, or in the name of their service or platform.
type catalogSearch struct {
	target
	form

	Limit int      `name:"limit" default:"50" help:"The most to print."`
	All   bool     `name:"all" help:"Print all."`
	Words []string `arg:"" name:"word" help:"Words, or parts of them, in any order."`
}

// errEnough ends a search that has found as many as it may print.
var errEnough = errors.New("enough")

// Run searches.
func (c *catalogSearch) Run(ctx context.Context, p *process) error {
	if err := c.check(nil); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	list := render.NewList(p.stdout, c.options(p, "id name bulk description"))
	found := 0
	err = each(ctx, client, "/catalog/actions", url.Values{"q": {strings.Join(c.Words, " ")}},
		func(item json.RawMessage) error {
			if !c.All && c.Limit > 0 && found == c.Limit {
				return errEnough
			}
			found++
			return list.Add(item) //nolint:wrapcheck // says what it did
		})
	more := errors.Is(err, errEnough)
	if err != nil && !more {
		return client.Explain("search the catalog", err)
	}
	if err := list.End(); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	c.remark(p, "None: try another word, or `flowlane catalog actions` for all.", found, nil, more)
	return nil
}
