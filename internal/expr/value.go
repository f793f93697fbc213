package expr

import (
	"errors"
	"fmt"
	"strconv"
)

// The values of expressions are nil, bool, string, int64, float64, number, []any and *object.

// number is a number of the data, still in its own digits; arithmetic reads it, everything else passes it on.
type number string

// object is a JSON object that keeps the order of its keys.
type object struct {
	keys  []string
	vals  []any
	index map[string]int
}

func (o *object) find(key string) int {
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range o.keys {
		if k == key {
			return i
		}
	}
	return -1
}

func (o *object) get(key string) any {
	if i := o.find(key); i >= 0 {
		return o.vals[i]
	}
	return nil
}

// set adds a key at the end or replaces its value in place.
func (o *object) set(key string, v any) {
	if i := o.find(key); i >= 0 {
		o.vals[i] = v
		return
	}
	if o.keys = append(o.keys, key); len(o.keys) > 8 {
		if o.index == nil {
			o.index = make(map[string]int)
			for i, k := range o.keys {
				o.index[k] = i
			}
		}
		o.index[key] = len(o.keys) - 1
	}
	o.vals = append(o.vals, v)
}

// typeName names the type of a value as users know it.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case *object:
		return "object"
	}
	return "number"
}

// aType is typeName with its article, for messages.
func aType(v any) string {
	switch name := typeName(v); name {
	case "null":
		return name
	case "array", "object":
		return "an " + name
	default:
		return "a " + name
	}
}

var (
	errFuel   = errors.New("the evaluation takes too many steps")
	errShared = errors.New("the elements of for_each take too many steps together; give fewer of them, " +
		"or expressions that do less for each")
	errConstants = errors.New("the constant expressions take too many steps together; write their values instead")
	errResult    = fmt.Errorf("the result is larger than %d bytes", MaxResult)
	errDepth     = fmt.Errorf("the value is nested more than %d levels deep", maxDataDepth)
)

// spend pays for steps of work, or fails when the allowance is used up.
func (r *run) spend(steps int) error {
	if r.fuel -= steps; r.fuel < 0 {
		r.fuel = 0
		if r.shared != nil && r.began < maxFuel {
			return errShared
		}
		return errFuel
	}
	return nil
}

// spendText pays for work on n bytes of text.
func (r *run) spendText(n int) error { return r.spend(1 + n/16) }

// text pays for a string that is about to be made, and refuses one that is too long.
func (r *run) text(n int) error {
	if n > MaxResult {
		return errResult
	}
	return r.spendText(n)
}

// decode turns a JSON span into a value; an empty span is null.
func (r *run) decode(raw []byte) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if err := r.spend(1 + len(raw)/64); err != nil {
		return nil, err
	}
	raw, err := checkJSON(raw)
	if err != nil {
		return nil, err
	}
	v, _, err := r.decodeAt(raw, 0)
	return v, err
}

// decodeAt decodes the value at i of valid JSON and returns the index after it.
func (r *run) decodeAt(raw []byte, i int) (any, int, error) {
	if err := r.spend(1); err != nil {
		return nil, 0, err
	}
	switch raw[i] {
	case '{':
		return r.decodeObject(raw, skipSpace(raw, i+1))
	case '[':
		arr := []any{}
		for i = skipSpace(raw, i+1); raw[i] != ']'; {
			v, end, err := r.decodeAt(raw, i)
			if err != nil {
				return nil, 0, err
			}
			arr = append(arr, v)
			i = nextElement(raw, end)
		}
		return arr, i + 1, nil
	}
	end := skipValue(raw, i, 0)
	if err := r.spendText(end - i); err != nil {
		return nil, 0, err
	}
	switch span := raw[i:end]; span[0] {
	case '"':
		return unquote(span), end, nil
	case 't', 'f':
		return span[0] == 't', end, nil
	case 'n':
		return nil, end, nil
	default:
		return number(span), end, nil
	}
}

func (r *run) decodeObject(raw []byte, i int) (any, int, error) {
	obj := &object{}
	for raw[i] != '}' {
		end := skipString(raw, i)
		name := unquote(raw[i:end])
		if err := r.spendText(end - i); err != nil {
			return nil, 0, err
		}
		v, end, err := r.decodeAt(raw, skipColon(raw, end))
		if err != nil {
			return nil, 0, err
		}
		obj.set(name, v)
		i = nextElement(raw, end)
	}
	return obj, i + 1, nil
}

// appendValue appends a value as JSON; limit is the longest that dst may become.
func appendValue(dst []byte, v any, limit, depth int) ([]byte, error) {
	if depth > maxDataDepth {
		return dst, errDepth
	}
	switch v := v.(type) {
	case string:
		if len(v) > limit {
			return dst, errResult
		}
		dst = AppendJSONString(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendValue(dst, e, limit, depth+1); err != nil {
				return dst, err
			}
		}
		dst = append(dst, ']')
	case *object:
		dst = append(dst, '{')
		for i, k := range v.keys {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendJSONString(dst, k), ':')
			var err error
			if dst, err = appendValue(dst, v.vals[i], limit, depth+1); err != nil {
				return dst, err
			}
		}
		dst = append(dst, '}')
	default:
		dst = appendScalar(dst, v)
	}
	if len(dst) > limit {
		return dst, errResult
	}
	return dst, nil
}

// appendScalar appends null, a boolean or a number.
func appendScalar(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return appendFloat(dst, v)
	case number:
		return append(dst, v...)
	}
	return append(dst, "null"...)
}

// textOf returns a value as text, as interpolation shows it: null is "", arrays and objects are JSON.
func (r *run) textOf(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []any, *object:
		return r.toJSON(v)
	case number: // may have as many digits as the input has bytes
		return string(v), r.text(len(v))
	}
	return string(appendScalar(nil, v)), nil
}

func (r *run) toJSON(v any) (string, error) {
	b, err := appendValue(nil, v, MaxResult, 0)
	if err != nil {
		return "", err
	}
	return string(b), r.spendText(len(b))
}

// equal compares two values: numbers by value whatever their spelling, objects whatever their order.
func (r *run) equal(a, b any, depth int) (bool, error) {
	if depth > maxDataDepth {
		return false, errDepth
	}
	if err := r.spend(1); err != nil {
		return false, err
	}
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false, nil
		}
		for i := range x {
			if same, err := r.equal(x[i], y[i], depth+1); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	case *object:
		y, ok := b.(*object)
		if !ok || len(x.keys) != len(y.keys) {
			return false, nil
		}
		for i, k := range x.keys {
			j := y.find(k)
			if j < 0 {
				return false, r.spendText(len(k))
			}
			if err := r.spendText(len(k)); err != nil {
				return false, err
			}
			if same, err := r.equal(x.vals[i], y.vals[j], depth+1); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	case string:
		y, ok := b.(string)
		return ok && x == y, r.spendText(len(x))
	case nil, bool:
		return a == b, nil
	}
	if typeName(b) != "number" {
		return false, nil
	}
	order, err := r.compareNumbers(a, b)
	return order == 0, err
}

// field returns a field of an object or an element of an array; null where there is none.
func (r *run) field(v, key any) (any, error) {
	switch k := key.(type) {
	case string:
		if err := r.spendText(len(k)); err != nil {
			return nil, err
		}
		if obj, ok := v.(*object); ok {
			return obj.get(k), nil
		}
		return nil, nil
	case int64, float64, number:
		n, ok := toInt(k)
		if !ok {
			return nil, errors.New("an index must be a whole number")
		}
		arr, _ := v.([]any)
		if n < 0 {
			n += int64(len(arr))
		}
		if n < 0 || n >= int64(len(arr)) {
			return nil, nil
		}
		return arr[n], nil
	}
	return nil, fmt.Errorf("an index must be a string or a whole number, not %s", aType(key))
}
