package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"flowlane/internal/cli/render"
)

// catalogSearch lists the actions of the catalog that have all of some words in id, name or description.
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
	err = each(ctx, client, "/catalog/actions", func(item json.RawMessage) error {
		var a struct{ ID, Name, Description string }
		if err := json.Unmarshal(item, &a); err != nil {
			return fmt.Errorf("the answer is not as documented: %w", err)
		}
		text := strings.ToLower(a.ID + " " + a.Name + " " + a.Description)
		for _, word := range c.Words {
			if !strings.Contains(text, strings.ToLower(word)) {
				return nil
			}
		}
		found++
		return list.Add(item) //nolint:wrapcheck // says what it did
	})
	if err != nil {
		return client.Explain("search the catalog", err)
	}
	c.remark(p, found, nil, false)
	return list.End() //nolint:wrapcheck // says what it did
}
