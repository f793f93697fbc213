package platformsim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// document is the vendor's own description of its API. What it does not describe passes.
type document struct {
	router routers.Router
	base   string
}

func readDocument(text []byte, base string) (*document, error) {
	var kind struct {
		Swagger string `json:"swagger"`
	}
	var doc *openapi3.T
	var err error
	if json.Unmarshal(text, &kind) == nil && kind.Swagger != "" {
		doc, err = readSwagger(text)
	} else {
		doc, err = openapi3.NewLoader().LoadFromData(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	doc.Servers = openapi3.Servers{{URL: "/"}}
	for _, item := range doc.Paths.Map() {
		item.Servers = nil
		for _, operation := range item.Operations() {
			operation.Servers = nil
			plainForm(operation)
		}
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("paths: %w", err)
	}
	return &document{router, base}, nil
}

const mediaForm = "application/x-www-form-urlencoded"

// plainForm frees the fields of a form that are objects: the library cannot read one whose parts stand in brackets.
// Their names are checked by unknownField.
func plainForm(operation *openapi3.Operation) {
	for name, field := range formOf(operation) {
		if v := field.Value; v != nil && (v.Type.Is("object") || len(v.AnyOf) > 0 || v.Items != nil &&
			!v.Items.Value.Type.Is("string")) {
			formOf(operation)[name] = openapi3.NewSchemaRef("", openapi3.NewSchema())
		}
	}
}

// formOf are the fields of the form that an operation takes; nil where it takes none.
func formOf(operation *openapi3.Operation) openapi3.Schemas {
	if operation.RequestBody == nil || operation.RequestBody.Value == nil {
		return nil
	}
	form := operation.RequestBody.Value.Content[mediaForm]
	if form == nil || form.Schema == nil || form.Schema.Value == nil {
		return nil
	}
	return form.Schema.Value.Properties
}

// unknownField is an error where a form has a field that the operation does not know.
func unknownField(operation *openapi3.Operation, r *http.Request, body []byte) error {
	known := formOf(operation)
	if len(known) == 0 || !strings.HasPrefix(r.Header.Get("Content-Type"), mediaForm) {
		return nil
	}
	fields, err := url.ParseQuery(string(body))
	if err != nil {
		return errors.New("the form cannot be read")
	}
	for name := range fields {
		plain, _, _ := strings.Cut(name, "[")
		if known[plain] == nil {
			return fmt.Errorf("unknown parameter %s", name)
		}
	}
	return nil
}

// readSwagger reads a document of version 2. Lists of types for the places of an array, which that version does not
// have, become one for any place; a parameter with the token stands in for what is sent as Authorization.
func readSwagger(text []byte) (*openapi3.T, error) {
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err //nolint:wrapcheck // the caller says of what
	}
	mended, err := json.Marshal(mend(tree))
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	var old openapi2.T
	if err := json.Unmarshal(mended, &old); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	return openapi2conv.ToV3(&old) //nolint:wrapcheck // as above
}

func mend(node any) any {
	switch n := node.(type) {
	case map[string]any:
		if _, places := n["items"].([]any); places {
			n["items"] = map[string]any{}
		}
		if (n["in"] == "header" || n["in"] == "query") && n["name"] == "token" {
			n["required"] = false
		}
		for name, inner := range n {
			n[name] = mend(inner)
		}
	case []any:
		for i, inner := range n {
			n[i] = mend(inner)
		}
	}
	return node
}

// find returns a copy of the request under the document's own path, and where it stands there; nil where it does not.
func (d *document) find(r *http.Request, body []byte) *openapi3filter.RequestValidationInput {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), d.base)
	if !ok {
		return nil
	}
	u, err := url.Parse(path)
	if err != nil {
		return nil
	}
	u.RawQuery = r.URL.RawQuery
	inner := r.Clone(context.WithoutCancel(r.Context()))
	inner.URL, inner.Body, inner.ContentLength = u, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	found, params, err := d.router.FindRoute(inner)
	if err != nil {
		return nil
	}
	return &openapi3filter.RequestValidationInput{
		Request: inner, PathParams: params, Route: found,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
			SkipSettingDefaults: true,
		},
	}
}

// request says what of a request is not as the document says.
func (d *document) request(r *http.Request, body []byte) error {
	in := d.find(r, body)
	if in == nil {
		return nil
	}
	if err := unknownField(in.Route.Operation, r, body); err != nil {
		return err
	}
	return brief(openapi3filter.ValidateRequest(context.Background(), in))
}

// answer says what of an answer is not as the document says. One that is no success is held against what the document
// has for all others where it has that, because some platforms answer errors with the status of success.
func (d *document) answer(r *http.Request, a reply, success bool) error {
	in := d.find(r, nil)
	if in == nil {
		return nil
	}
	responses, status := in.Route.Operation.Responses, a.status
	switch {
	case responses.Default() != nil && !success:
		status = 0
	case responses.Status(a.status) == nil && responses.Default() == nil:
		if success {
			return fmt.Errorf("status %d is not described", a.status)
		}
		return nil
	}
	h := http.Header{"Content-Type": {a.media}}
	for name, value := range a.headers {
		h.Set(name, value)
	}
	return brief(openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: status, Header: h, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: in.Options,
	}))
}

// brief shortens an error of a validation to its place and its reason.
func brief(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if schema := new(openapi3.SchemaError); errors.As(err, &schema) {
		text = "/" + strings.Join(schema.JSONPointer(), "/") + ": " + schema.Reason
	}
	return errors.New(text)
}
