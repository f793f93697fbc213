package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/expr"
	"flowlane/internal/valuetype"
)

// Layer is what one source says of a record.
type Layer struct {
	Name string `json:"layer"`
	// Values are by field: raw JSON, never null. Fields may be among them that the store declared earlier and declares
	// no more, or with another type: they count again once they are declared as they are.
	Values    map[string]json.RawMessage `json:"values"`
	UpdatedAt time.Time                  `json:"updated_at"`
	// UpdatedBy is the id of the account, or of the batch, that wrote it last.
	UpdatedBy string `json:"updated_by"`
}

// resolution is what a configuration makes of layers, in parallel to its fields: the value of the highest layer that
// has one of the field's type, and the layer's name; nil and empty where none has.
type resolution struct {
	values []json.RawMessage
	from   []string
}

// resolve is the one rule of what a record shows.
func (c *Config) resolve(layers []Layer) resolution {
	r := resolution{values: make([]json.RawMessage, len(c.Fields)), from: make([]string, len(c.Fields))}
	for i, f := range c.Fields {
		rule, _ := valuetype.Of(f.Type)
		best := -1
		for _, l := range layers {
			p := c.precedence(l.Name)
			if value := l.Values[f.Name]; p > best && rule.Holds(value) {
				best, r.values[i], r.from[i] = p, value, l.Name
			}
		}
	}
	return r
}

// object writes a resolution as records show it: every declared field, null where no layer has it.
func (c *Config) object(r resolution) json.RawMessage {
	out := []byte{'{'}
	for i, f := range c.Fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(expr.AppendJSONString(out, f.Name), ':')
		if r.values[i] == nil {
			out = append(out, "null"...)
		} else {
			out = append(out, r.values[i]...)
		}
	}
	return append(out, '}')
}

// provenance tells which layer each field that has a value comes from.
func (c *Config) provenance(r resolution) map[string]string {
	out := map[string]string{}
	for i, f := range c.Fields {
		if r.from[i] != "" {
			out[f.Name] = r.from[i]
		}
	}
	return out
}

// terms are what filters look for, as Postgres writes an array.
func (c *Config) terms(storeID uuid.UUID, r resolution) string {
	var out strings.Builder
	out.WriteByte('{')
	for i, f := range c.Fields {
		if r.values[i] == nil {
			continue
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.WriteString(term(storeID, f, canonical(f.Type, r.values[i])).String())
	}
	out.WriteByte('}')
	return out.String()
}

// order sorts layers as they are shown: those that are not declared first, then from the lowest precedence to the
// highest.
func (c *Config) order(layers []Layer) {
	slices.SortFunc(layers, func(a, b Layer) int {
		return cmp.Or(cmp.Compare(c.precedence(a.Name), c.precedence(b.Name)), strings.Compare(a.Name, b.Name))
	})
}

func decodeLayers(raw []byte) (layers []Layer, err error) {
	if err := json.Unmarshal(raw, &layers); err != nil {
		return nil, fmt.Errorf("decode the layers of a record: %w", err)
	}
	return layers, nil
}

func encodeLayers(layers []Layer) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(layers); err != nil {
		return nil, fmt.Errorf("encode the layers of a record: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// ValuesJSON returns the values as one object, by name.
func (l Layer) ValuesJSON() json.RawMessage {
	names := make([]string, 0, len(l.Values))
	for name := range l.Values {
		names = append(names, name)
	}
	slices.Sort(names)
	out := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(expr.AppendJSONString(out, name), ':'), l.Values[name]...)
	}
	return append(out, '}')
}
