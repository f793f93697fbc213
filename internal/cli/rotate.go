package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"

	"flowlane"
	"flowlane/internal/cli/apidoc"
	"flowlane/internal/cli/remote"
)

// credentialsRotate sends a credential back as it is, with another secret. The secret is no flag: the flags of a
// process are there for all to read.
type credentialsRotate struct {
	target
	output

	Credential string `arg:"" help:"Name or id of the credential."`
	File       string `name:"file" short:"f" default:"-" help:"The new secret, the field credentials, as YAML or JSON; - is standard input."`
	Verify     bool   `default:"true" negatable:"" help:"Refuse a secret that the platform does not take."`
}

// Run replaces the secret.
func (c *credentialsRotate) Run(ctx context.Context, p *process) error {
	secret, err := readValue("@" + c.File)
	if err != nil {
		return err
	}
	if _, ok := secret.(map[string]any); !ok {
		return usageError{fmt.Errorf("--file %s: it holds no object, such as {username: ..., password: ...}", c.File)}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	id, err := resolve(ctx, client, "credential_id", c.Credential)
	if err != nil {
		return err
	}
	path := "/credentials/" + url.PathEscape(id)
	current, err := object(ctx, client, remote.Request{Method: "GET", Path: path, Repeat: true})
	if err != nil {
		return client.Explain("read the credential", err)
	}
	doc, err := apidoc.Read(flowlane.OpenAPI)
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	fields := doc.Fields(doc.Operation("replaceCredential").Body)
	maps.DeleteFunc(current, func(name string, v any) bool {
		return v == nil || !slices.ContainsFunc(fields, func(f apidoc.Property) bool { return f.Name == name })
	})
	current["credentials"] = secret
	body, err := json.Marshal(current)
	if err != nil {
		return usageError{fmt.Errorf("--file %s: names of fields must be texts: %w", c.File, err)}
	}
	query := url.Values{"verify": {fmt.Sprint(c.Verify)}}
	if _, err := object(ctx, client, remote.Request{Method: "PUT", Path: path, Query: query, Body: body,
		Repeat: true}); err != nil {
		return client.Explain("replace the secret", err)
	}
	return c.print(p, map[string]string{"id": id}, func(w io.Writer) {
		fmt.Fprintf(w, "The credential %s has a new secret; calls use it from now on.\n", c.Credential)
	})
}

// object makes a request whose answer is an object.
func object(ctx context.Context, client *remote.Client, r remote.Request) (map[string]any, error) {
	res, err := client.Send(ctx, r)
	if err != nil {
		return nil, err //nolint:wrapcheck // Explain knows it
	}
	defer res.Body.Close()
	d := json.NewDecoder(io.LimitReader(res.Body, maxAnswer))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("the answer is not as documented: %w", err)
	}
	return out, nil
}
