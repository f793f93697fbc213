package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"flowlane/internal/cli/render"
)

// catalogSearch lists the actions of the catalog that have all of some words in id, name or
// description, or in the name of their service or platform.
type catalogSearch struct {
	target
	form

	Words []string `arg:"" name:"word" help:"Words, or parts of them, in any order."`
}

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
	err = each(ctx, client, "/catalog/actions", url.Values{"q": {strings.Join(c.Words, " ")}}, func(item json.RawMessage) error {
		found++
		return list.Add(item) //nolint:wrapcheck // says what it did
	})
	if err != nil {
		return client.Explain("search the catalog", err)
	}
	c.remark(p, found, nil, false)
	return list.End() //nolint:wrapcheck // says what it did
}
