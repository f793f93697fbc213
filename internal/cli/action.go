package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/cli/apidoc"
	"flowlane/internal/cli/flowfile"
	"flowlane/internal/cli/remote"
	"flowlane/internal/cli/render"
)

// maxInput bounds a file of settings, maxAnswer an answer that is held in memory.
const (
	maxInput  = 64 << 20
	maxAnswer = 512 << 20
)

// run makes the request of a verb and prints the answer. at is the struct of its arguments.
func (a *action) run(ctx context.Context, p *process, at reflect.Value) error {
	flags := at.FieldByName(shapeFlags).Interface().(verbFlags) //nolint:forcetypeassert // newAction made it
	if err := flags.check(a); err != nil {
		return err
	}
	body, err := a.body(at)
	if err != nil {
		return err
	}
	client, err := flags.client()
	if err != nil {
		return err
	}
	r := remote.Request{Method: a.op.Method, Path: a.op.Path, Query: url.Values{}, Header: http.Header{}}
	if r.Body, err = a.marshal(ctx, client, body); err != nil {
		return err
	}
	r.Repeat = r.Method != http.MethodPost && r.Method != http.MethodPatch
	if a.keyed { // with a name of its own a request may be sent again
		r.Header.Set(idempotencyKey, cmp.Or(at.FieldByName(shapeKey).String(), rand.Text()))
		r.Repeat = true
	}
	for _, f := range a.fields {
		if err := a.place(ctx, client, &r, f, at.Field(f.at)); err != nil {
			return err
		}
	}
	what := strings.ToLower(a.op.Summary[:1]) + a.op.Summary[1:]
	if a.list {
		limit := int(at.FieldByName(shapeLimit).Int())
		if at.FieldByName(shapeAll).Bool() {
			limit = 0
		}
		return client.Explain(what, a.pages(ctx, p, client, r, flags.form, limit))
	}
	err = client.Explain(what, a.once(ctx, p, client, r, flags.form))
	if key := r.Header.Get(idempotencyKey); key != "" && exitCode(err) == exitUnavailable {
		return fmt.Errorf("%w; if it was done, the same command with --idempotency-key %s does not do it again", err, key)
	}
	return err
}

// place puts a value of the path or the query where it belongs; names become ids.
func (a *action) place(ctx context.Context, client *remote.Client, r *remote.Request, f field, v reflect.Value) error {
	if f.in == "body" || (v.Kind() != reflect.String && v.IsZero()) {
		return nil
	}
	text := fmt.Sprint(reflect.Indirect(v))
	if v.Kind() == reflect.Slice {
		text = strings.Join(v.Interface().([]string), ",") //nolint:forcetypeassert // shape made it
	}
	id, err := resolve(ctx, client, f.name, text)
	if err != nil {
		return err
	}
	if f.in == "path" {
		if id == "" {
			return usageError{fmt.Errorf("<%s> is empty", argument(f.name))}
		}
		r.Path = strings.Replace(r.Path, "{"+f.name+"}", url.PathEscape(id), 1)
		return nil
	}
	r.Query.Set(f.name, id)
	return nil
}

// body makes the body: the file, and over it the flags.
func (a *action) body(at reflect.Value) (map[string]any, error) {
	if a.op.Body == nil {
		return nil, a.checkChoices(at)
	}
	object := map[string]any{}
	file := at.FieldByName(shapeFile).String()
	if file != "" {
		v, err := readValue("@" + file)
		if err != nil {
			return nil, err
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, usageError{fmt.Errorf("--file %s: it holds no object", file)}
		}
		object = m
	}
	if err := a.checkChoices(at); err != nil {
		return nil, err
	}
	for _, f := range a.fields {
		v := at.Field(f.at)
		if f.in != "body" || v.IsZero() {
			continue
		}
		value, err := f.value(v)
		if err != nil {
			return nil, usageError{fmt.Errorf("--%s: %w", flagName(f.name), err)}
		}
		object[f.name] = value
	}
	if len(object) == 0 && !a.op.BodyRequired {
		return nil, nil
	}
	if len(object) == 0 && file == "" {
		return nil, usageError{errors.New("nothing to send: name it by flags or with --file; --help lists them")}
	}
	return object, nil
}

// marshal writes a body as JSON, with ids in place of names.
func (a *action) marshal(ctx context.Context, client *remote.Client, object map[string]any) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	for _, f := range a.fields {
		text, ok := object[f.name].(string)
		if f.in != "body" || !ok {
			continue
		}
		id, err := resolve(ctx, client, f.name, text)
		if err != nil {
			return nil, err
		}
		object[f.name] = id
	}
	if _, ok := object["steps"].([]any); ok { // a flow, whose tasks name credentials
		ids := map[string]string{}
		flow, err := flowfile.Flow(object).Rename(func(field, text string) (id string, err error) {
			if id = ids[field+text]; id == "" {
				id, err = resolve(ctx, client, field, text)
				ids[field+text] = id
			}
			return id, err
		})
		if err != nil {
			return nil, err //nolint:wrapcheck // resolve says what is not there
		}
		object = flow
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, usageError{fmt.Errorf("--file: names of fields must be texts: %w", err)}
	}
	return text, nil
}

// checkChoices refuses a word that the API does not know, before anything is sent.
func (a *action) checkChoices(at reflect.Value) error {
	for _, f := range a.fields {
		v := at.Field(f.at)
		if len(f.choices) == 0 || v.IsZero() || f.in == "path" {
			continue
		}
		given := []string{fmt.Sprint(reflect.Indirect(v))}
		if v.Kind() == reflect.Slice {
			given = v.Interface().([]string) //nolint:forcetypeassert // shape made it
		}
		for _, word := range given {
			if !slices.Contains(f.choices, word) {
				return usageError{fmt.Errorf("--%s: %q is none of %s", flagName(f.name), word, strings.Join(f.choices,
					", "))}
			}
		}
	}
	return nil
}

// value is what a flag says, as JSON has it.
func (f field) value(v reflect.Value) (any, error) {
	switch f.kind {
	case apidoc.Boolean:
		return v.Elem().Bool(), nil
	case apidoc.List:
		return v.Interface(), nil
	case apidoc.JSON:
		return readValue(v.Elem().String())
	case apidoc.Number:
		text := v.Elem().String()
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("%q is no number", text)
		}
		return json.Number(text), nil
	default:
		return v.Elem().String(), nil
	}
}

// readValue reads YAML or JSON: the text itself, the file after an @, or standard input for @-.
func readValue(text string) (any, error) {
	name, file := strings.CutPrefix(text, "@")
	if file {
		var from io.Reader = os.Stdin
		if name != "-" {
			f, err := os.Open(name)
			if err != nil {
				return nil, usageError{err}
			}
			defer f.Close()
			from = f
		}
		read, err := io.ReadAll(io.LimitReader(from, maxInput+1))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if len(read) > maxInput {
			return nil, usageError{fmt.Errorf("%s is larger than %d bytes", name, maxInput)}
		}
		text = string(read)
	}
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", name, err)}
	}
	v, err := flowfile.Decode(&node)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", name, err)}
	}
	return v, nil
}

// once makes the request and prints its answer.
func (a *action) once(ctx context.Context, p *process, client *remote.Client, r remote.Request, form form) error {
	res, err := client.Send(ctx, r)
	if err != nil {
		return err //nolint:wrapcheck // Explain knows it
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err //nolint:wrapcheck // Explain knows it
	}
	if len(text) == 0 {
		if form.format() == render.Table {
			fmt.Fprintln(p.stdout, "Done.")
		}
		return nil
	}
	var page struct {
		Items []json.RawMessage `json:"items"`
	}
	items := a.doc.Items(a.op) != nil
	if items && text[0] == '[' {
		err = json.Unmarshal(text, &page.Items)
	} else if items {
		err = json.Unmarshal(text, &page)
	}
	switch {
	case err != nil:
		return fmt.Errorf("the answer is not as documented: %w", err)
	case !items:
		return render.One(p.stdout, form.options(p, ""), text) //nolint:wrapcheck // says what it did
	}
	list := render.NewList(p.stdout, form.options(p, a.columns))
	for _, item := range page.Items {
		if err := list.Add(item); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
	}
	form.remark(p, a.none, len(page.Items), nil, false)
	return list.End() //nolint:wrapcheck // says what it did
}

// page is one page of a list.
type page struct {
	Items  []json.RawMessage `json:"items"`
	Total  *int64            `json:"total"`
	Cursor *string           `json:"next_cursor"`
}

// pageSize is how many items are asked for at once.
const pageSize = 500

// pages prints a list up to limit, 0 for all, however many pages that takes.
func (a *action) pages(ctx context.Context, p *process, client *remote.Client, r remote.Request, form form,
	limit int) error {
	size := pageSize
	for _, param := range a.op.Params {
		if param.Name == "limit" && param.Schema.Maximum > 0 {
			size = min(size, param.Schema.Maximum)
		}
	}
	list := render.NewList(p.stdout, form.options(p, a.columns))
	shown := 0
	for {
		query := maps.Clone(r.Query)
		r.Query.Set("limit", strconv.Itoa(size))
		if limit > 0 {
			r.Query.Set("limit", strconv.Itoa(min(size, limit-shown)))
		}
		got, err := readPage(ctx, client, r)
		if err != nil {
			return err
		}
		for _, item := range got.Items {
			if err := list.Add(item); err != nil {
				return err //nolint:wrapcheck // says what it did
			}
		}
		shown += len(got.Items)
		more := got.Cursor != nil
		if !more || (limit > 0 && shown >= limit) {
			if err := list.End(); err != nil {
				return err //nolint:wrapcheck // says what it did
			}
			form.remark(p, a.none, shown, got.Total, more)
			return nil
		}
		r.Query = query
		r.Query.Set("cursor", *got.Cursor)
	}
}

func readPage(ctx context.Context, client *remote.Client, r remote.Request) (page, error) {
	var out page
	res, err := client.Send(ctx, r)
	if err != nil {
		return out, err //nolint:wrapcheck // Explain knows it
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&out); err != nil {
		return out, fmt.Errorf("the answer is not as documented: %w", err)
	}
	return out, nil
}
