// Package jsonraw owns the two JSON types whose bytes go through the service untouched: an object and any value.
// Both keep the bytes as they were sent, so that key order and every digit of a number survive. It also tells how deep
// a text lies, and what stands at a place of a value. It knows nothing of HTTP or of storage.
package jsonraw

import (
	"errors"

	"github.com/go-faster/jx"
)

// Object is the text of one JSON object, braces included. The zero value stands for the empty object.
type Object []byte

// errNotObject is the message that a caller sees when another kind of value stands where an object must.
var errNotObject = errors.New("must be an object")

// Decode takes the next value without copying it: o refers to the decoder's buffer and is valid as long as that is.
// Anything but an object is refused.
func (o *Object) Decode(d *jx.Decoder) error {
	if d.Next() != jx.Object {
		return errNotObject
	}
	raw, err := d.Raw()
	if err != nil {
		return err
	}
	*o = Object(raw)
	return nil
}

// Encode writes the object as it is.
func (o Object) Encode(e *jx.Encoder) { e.Raw(o.Bytes()) }

// Bytes returns the text, "{}" for the zero value.
func (o Object) Bytes() []byte {
	if len(o) == 0 {
		return []byte("{}")
	}
	return o
}

// MarshalJSON returns the text as it is.
func (o Object) MarshalJSON() ([]byte, error) { return o.Bytes(), nil }

// UnmarshalJSON keeps a copy of an object's text and refuses anything else.
func (o *Object) UnmarshalJSON(data []byte) error {
	if jx.DecodeBytes(data).Next() != jx.Object {
		return errNotObject
	}
	*o = append((*o)[:0:0], data...)
	return nil
}

// Value is the text of any JSON value. The zero value stands for null.
type Value []byte

// Decode takes the next value without copying it, as Object.Decode does.
func (v *Value) Decode(d *jx.Decoder) error {
	raw, err := d.Raw()
	if err != nil {
		return err
	}
	*v = Value(raw)
	return nil
}

// Encode writes the value as it is.
func (v Value) Encode(e *jx.Encoder) { e.Raw(v.Bytes()) }

// Bytes returns the text, "null" for the zero value.
func (v Value) Bytes() []byte {
	if len(v) == 0 {
		return []byte("null")
	}
	return v
}

// MarshalJSON returns the text as it is.
func (v Value) MarshalJSON() ([]byte, error) { return v.Bytes(), nil }

// UnmarshalJSON keeps a copy of the text.
func (v *Value) UnmarshalJSON(data []byte) error {
	*v = append((*v)[:0:0], data...)
	return nil
}
