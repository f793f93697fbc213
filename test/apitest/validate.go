// Package apitest owns what tests over HTTP share: a client whose every response is validated against openapi.yaml by a
// library that generated none of our code, and factories for organizations and keys. Only tests import it.
package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"flowlane/internal/api/violation"
)

const prefix = "/v1"

// Checked returns a transport that fails the test when a response under /v1 is not what openapi.yaml promises: an
// undocumented status or field, a wrong type, a missing field, no X-Request-Id. Streams (application/x-ndjson) are
// validated line by line while the test reads them; events (text/event-stream) pass through. base nil means a transport
// of its own.
func Checked(t testing.TB, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	if base == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		t.Cleanup(own.CloseIdleConnections)
		base = own
	}
	return &checked{t: t, base: base}
}

type checked struct {
	t    testing.TB
	base http.RoundTripper
}

func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.base.RoundTrip(r)
	if err != nil || !strings.HasPrefix(r.URL.Path, prefix+"/") {
		return res, err
	}
	if err := Check(r, res); err != nil {
		c.t.Errorf("%s %s answered %d, which is not what openapi.yaml says: %v", r.Method, r.URL.Path, res.StatusCode,
			err)
	}
	if item := lineSchema(r, res); item != nil {
		res.Body = &lines{ReadCloser: res.Body, check: func(line []byte) {
			if err := checkJSON(item, line); err != nil {
				c.t.Errorf("%s %s sent a line that is not what openapi.yaml says: %v", r.Method, r.URL.Path, err)
			}
		}}
	}
	return res, nil
}

// HTTP returns a client for tests that make their own requests; it validates like Checked.
func HTTP(t testing.TB) *http.Client {
	t.Helper()
	return &http.Client{Transport: Checked(t, nil)}
}

// Check validates one response to r; its body can be read again afterwards.
func Check(r *http.Request, res *http.Response) error {
	if res.Header.Get("X-Request-Id") == "" {
		return errors.New("there is no X-Request-Id")
	}
	doc := document()
	var body []byte
	if media := mediaOf(res); media != ndjson && media != eventStream {
		var err error
		if body, err = io.ReadAll(res.Body); err != nil {
			return err
		}
		_ = res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err := checkProblem(res, body); err != nil {
		return err
	}
	route, params, err := doc.router.FindRoute(r)
	if err != nil {
		return doc.checkError(res.StatusCode, body)
	}
	if err := checkEmpty(route.Operation, res.StatusCode, body); err != nil {
		return err
	}
	plain := mediaOf(res) == "application/json"
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 res.StatusCode,
		Header:                 res.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: plain ||
			mediaOf(res) == eventStream},
	}
	in.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(r.Context(), in); err != nil || !plain || unread(r, res) {
		return err
	}
	return checkBody(route.Operation, res, body)
}

// unread reports whether a response has no body, whatever its header says of one.
func unread(r *http.Request, res *http.Response) bool {
	return r.Method == http.MethodHead || res.StatusCode == http.StatusNotModified
}

// checkBody validates a JSON body by its compiled schema: the library compiles anew for each body, which took a fifth
// of the time of all tests.
func checkBody(op *openapi3.Operation, res *http.Response, body []byte) error {
	ref := op.Responses.Status(res.StatusCode)
	if ref == nil {
		ref = op.Responses.Default()
	}
	if len(ref.Value.Content) == 0 {
		return nil // checkEmpty says that there is no body
	}
	content := ref.Value.Content.Get(res.Header.Get("Content-Type"))
	if content == nil {
		return errors.New("a body of JSON is not documented")
	}
	return checkJSON(content.Schema.Value, body)
}

// checkProblem holds of an error what no schema can say: it names its own request, and says what to do.
func checkProblem(res *http.Response, body []byte) error {
	if res.StatusCode < http.StatusBadRequest {
		return nil
	}
	var e struct {
		RequestID string `json:"request_id"`
		Hint      string `json:"hint"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return err
	}
	if id := res.Header.Get("X-Request-Id"); e.RequestID != id {
		return fmt.Errorf("the error of request %s names request %q", id, e.RequestID)
	}
	if e.Hint == "" {
		return errors.New("the error has no hint")
	}
	return nil
}

// CheckSchema validates a JSON text that is no response of its own, such as the data of an event, as a schema of the
// document.
func CheckSchema(name string, text []byte) error {
	schema := document().schemas[name]
	if schema == nil {
		return fmt.Errorf("the document has no schema %s", name)
	}
	return checkJSON(schema.Value, text)
}

// checkEmpty holds what the library does not: a status that is documented without content has no body.
func checkEmpty(op *openapi3.Operation, status int, body []byte) error {
	ref := op.Responses.Status(status)
	if ref != nil && len(ref.Value.Content) == 0 && len(body) > 0 {
		return fmt.Errorf("there is a body of %d bytes where none is documented", len(body))
	}
	return nil
}

type apiDocument struct {
	router  routers.Router
	errors  *openapi3.Schema
	schemas openapi3.Schemas
}

// checkError validates the answer to an address or method that is not in the document.
func (d apiDocument) checkError(status int, body []byte) error {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return errors.New("the operation is not documented")
	}
	return checkJSON(d.errors, body)
}

// document is openapi.yaml made strict: answers may grow, which clients must bear, but not unnoticed.
var document = sync.OnceValue(func() apiDocument {
	doc, err := strictDocument()
	if err != nil {
		panic(err)
	}
	return doc
})

func strictDocument() (apiDocument, error) {
	tree, err := violation.Document()
	if err != nil {
		return apiDocument{}, err
	}
	s := strict{root: tree}
	text, err := json.Marshal(s.copy(tree, ""))
	if err != nil {
		return apiDocument{}, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return apiDocument{}, err
	}
	doc.Servers = openapi3.Servers{{URL: prefix}}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return apiDocument{}, err
	}
	return apiDocument{router: router, errors: doc.Components.Schemas["Error"].Value, schemas: doc.Components.Schemas},
		nil
}
