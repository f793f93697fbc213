package catalog

import (
	"slices"
	"strings"

	"flowlane/internal/fault"
	"flowlane/internal/suggest"
)

// MissingPlatform says that there is no such platform, and which one may have been meant. Fault: NotFound.
func (c *Catalog) MissingPlatform(id string) error {
	ids := make([]string, len(c.order))
	for i, p := range c.order {
		ids[i] = p.ID
	}
	return missing("Platform", "platforms", id, ids)
}

// MissingService does so for a service.
func (c *Catalog) MissingService(id string) error {
	ids := make([]string, len(c.serviceOrder))
	for i, s := range c.serviceOrder {
		ids[i] = s.ID
	}
	return missing("Service", "services", id, ids)
}

// MissingAction does so for an action.
func (c *Catalog) MissingAction(id string) error {
	return missing("Action", "actions", id, c.actionIDs())
}

// NearAction ends a message about an action that there is not: it asks for the nearest one; empty if none is near.
func (c *Catalog) NearAction(id string) string { return suggest.DidYouMean(id, c.actionIDs()) }

// Search returns the actions that have every word of a text in their id, name or description, or in the name of their
// service or platform, whatever their case; all for an empty text.
func (c *Catalog) Search(text string) []*Action {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return c.actionOrder
	}
	var out []*Action
	for _, a := range c.actionOrder {
		in := a.ID + "\n" + a.Name + "\n" + a.Description
		if s, ok := c.Service(a.ServiceID); ok {
			in += "\n" + s.Name
		}
		if p, ok := c.Platform(a.PlatformID); ok {
			in += "\n" + p.Name
		}
		in = strings.ToLower(in)
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(in, w) }) {
			out = append(out, a)
		}
	}
	return out
}

func (c *Catalog) actionIDs() []string {
	ids := make([]string, len(c.actionOrder))
	for i, a := range c.actionOrder {
		ids[i] = a.ID
	}
	return ids
}

func missing(thing, list, id string, known []string) error {
	f := fault.Missing(thing)
	if near := suggest.Nearest(id, known); near != "" {
		return f.Hinted("Did you mean %q? GET /v1/catalog/%s lists all of them.", near, list)
	}
	return f.Hinted("GET /v1/catalog/%s lists all of them.", list)
}
