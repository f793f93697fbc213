package apitest

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	ndjson      = "application/x-ndjson"
	eventStream = "text/event-stream"
)

func mediaOf(res *http.Response) string {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return media
}

// lineSchema returns what each line of a stream must be, the item of the list that the same operation gives as JSON, or
// nil if res is no such stream.
func lineSchema(r *http.Request, res *http.Response) *openapi3.Schema {
	if mediaOf(res) != ndjson {
		return nil
	}
	route, _, err := document().router.FindRoute(r)
	if err != nil {
		return nil
	}
	list := route.Operation.Responses.Status(res.StatusCode).Value.Content.Get("application/json").Schema.Value
	return list.Properties["items"].Value.Items.Value
}

// compiled holds schemas: the library compiles anew for each value.
var compiled sync.Map // *openapi3.Schema to *jsonschema.Schema

func compile(schema *openapi3.Schema) (*jsonschema.Schema, error) {
	if known, ok := compiled.Load(schema); ok {
		return known.(*jsonschema.Schema), nil
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", tree); err != nil {
		return nil, err
	}
	made, err := c.Compile("schema.json")
	if err != nil {
		return nil, err
	}
	compiled.Store(schema, made)
	return made, nil
}

// checkJSON validates a JSON text.
func checkJSON(schema *openapi3.Schema, text []byte) error {
	made, err := compile(schema)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return made.Validate(value)
}

// lines hands every whole line that is read to check.
type lines struct {
	io.ReadCloser

	check func(line []byte)
	rest  []byte
}

func (l *lines) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	l.rest = append(l.rest, p[:n]...)
	for {
		line, after, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return n, err
		}
		l.check(line)
		l.rest = after
	}
}
