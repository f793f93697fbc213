package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
)

// named says where things stand that people call by a name, by the parameter that takes their id.
var named = map[string]struct{ path, field, noun string }{
	"definition_id":   {"/flows/definitions", "name", "flows"},
	"credential_id":   {"/credentials", "name", "credentials"},
	"variable_set_id": {"/flows/variables", "name", "variables"},
	"schedule_id":     {"/flows/schedules", "description", "schedules"},
	"subscription_id": {"/flows/event-subscriptions", "description", "subscriptions"},
	"webhook_id":      {"/flows/webhooks", "description", "webhooks"},
	"key_id":          {"/account/api-keys", "name", "keys"},
}

// anID is how ids look; whatever else is given is a name.
var anID = regexp.MustCompile(`^([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// resolve returns the id of what a person named: ids and what has no names stay as they are.
func resolve(ctx context.Context, client *remote.Client, param, text string) (string, error) {
	at, ok := named[param]
	if !ok || text == "" || anID.MatchString(text) {
		return text, nil
	}
	var ids []string
	err := each(ctx, client, at.path, nil, func(item json.RawMessage) error {
		n, err := render.Decode(item)
		if err != nil {
			return err //nolint:wrapcheck // says what it is about
		}
		if render.Text(render.Field(n, at.field)) == text {
			ids = append(ids, render.Text(render.Field(n, "id")))
		}
		return nil
	})
	kind := argument(param)
	switch {
	case err != nil:
		return "", client.Explain("look up the "+kind+" "+text, err)
	case len(ids) == 0:
		return "", notFoundError{fmt.Errorf("no %s has the %s %q; `flowlane %s list` shows them", kind, at.field, text,
			at.noun)}
	case len(ids) > 1:
		return "", usageError{fmt.Errorf("%d have the %s %q: give the id, one of %s", len(ids), at.field, text,
			strings.Join(ids, ", "))}
	}
	return ids[0], nil
}

// each calls see with every item of a list, page by page.
func each(ctx context.Context, client *remote.Client, path string, query url.Values,
	see func(json.RawMessage) error) error {
	r := remote.Request{Method: "GET", Path: path, Query: url.Values{}, Repeat: true}
	maps.Copy(r.Query, query)
	r.Query.Set("limit", strconv.Itoa(200)) //nolint:mnd // every list allows it
	for {
		got, err := readPage(ctx, client, r)
		if err != nil {
			return err
		}
		for _, item := range got.Items {
			if err := see(item); err != nil {
				return err
			}
		}
		if got.Cursor == nil {
			return nil
		}
		r.Query.Set("cursor", *got.Cursor)
	}
}
