package recordset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// maxExponentDigits bounds the work on the exponent of a number.
const maxExponentDigits = 1000

// sameValue tells whether two JSON texts stand for the same value: key order, white space, escapes and the spelling of
// numbers (1, 1.0, 10e-1) do not count. Of a key that stands twice the last one counts.
func sameValue(a, b []byte) (bool, error) {
	if bytes.Equal(a, b) {
		return true, nil
	}
	x, err := decode(a)
	if err != nil {
		return false, err
	}
	y, err := decode(b)
	if err != nil {
		return false, err
	}
	return equal(x, y), nil
}

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode a stored record: %w", err)
	}
	return v, nil
}

func equal(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, ok := y[k]
			if !ok || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case json.Number:
		y, ok := b.(json.Number)
		return ok && (x == y || decimalOf(string(x)).equals(decimalOf(string(y))))
	}
	return a == b
}

// decimal is a number as digits × 10^exponent, without zeros at either end of digits; zero is "0" and exponent 0.
type decimal struct {
	negative bool
	digits   string
	exponent big.Int
	// odd holds an exponent that is too long to compute with; such numbers equal only their like.
	odd string
}

// decimalOf reads a number of valid JSON.
func decimalOf(text string) decimal {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa, exponent = text[:at], text[at+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(all, "0")
	if d.digits == "" {
		return decimal{digits: "0"}
	}
	sign := ""
	if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
		sign, exponent = strings.Trim(exponent[:1], "+"), exponent[1:]
	}
	exponent = strings.TrimLeft(exponent, "0")
	shift := int64(len(all) - len(d.digits) - len(fraction))
	if len(exponent) > maxExponentDigits {
		d.odd, exponent = sign+exponent, ""
	}
	if exponent != "" {
		d.exponent.SetString(sign+exponent, 10)
	}
	d.exponent.Add(&d.exponent, big.NewInt(shift))
	return d
}

func (d decimal) equals(o decimal) bool {
	return d.negative == o.negative && d.digits == o.digits && d.odd == o.odd && d.exponent.Cmp(&o.exponent) == 0
}
