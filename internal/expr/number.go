package expr

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// num is a number ready for arithmetic: an int64 if its text is an integer that fits, else a float64.
type num struct {
	i     int64
	f     float64
	isInt bool
}

var errRange = errors.New("the number is too large for arithmetic")

// maxDigits is the longest text that arithmetic reads: reading costs its length each time.
const maxDigits = 1000

// toNum reads a number for arithmetic; ok is false for values that are not numbers.
func toNum(v any) (n num, ok bool, err error) {
	switch v := v.(type) {
	case int64:
		return num{i: v, f: float64(v), isInt: true}, true, nil
	case float64:
		return num{f: v}, true, nil
	case number:
		if len(v) > maxDigits {
			return num{}, true, errRange
		}
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return num{i: i, f: float64(i), isInt: true}, true, nil
		}
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return num{}, true, errRange
		}
		return num{f: f}, true, nil
	}
	return num{}, false, nil
}

// toInt reads a whole number: 3, 3.0 and 3e0 are; ok is false for anything else or out of the range of int64.
func toInt(v any) (int64, bool) {
	n, ok, err := toNum(v)
	if !ok || err != nil {
		return 0, false
	}
	if n.isInt {
		return n.i, true
	}
	if n.f != math.Trunc(n.f) || n.f < -1<<63 || n.f >= 1<<63 {
		return 0, false
	}
	return int64(n.f), true
}

// float keeps infinities and NaN out of the values: JSON has neither.
func float(f float64) (any, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errRange
	}
	return f, nil
}

// arithmetic applies + - * / % ** to two numbers. Integers stay integers where the result is one that fits.
func arithmetic(op string, a, b any) (any, error) {
	x, okA, errA := toNum(a)
	y, okB, errB := toNum(b)
	if !okA || !okB {
		return nil, fmt.Errorf("%q needs two numbers, not %s and %s", op, aType(a), aType(b))
	}
	if err := errors.Join(errA, errB); err != nil {
		return nil, errRange
	}
	if x.isInt && y.isInt {
		if v, ok := integer(op, x.i, y.i); ok {
			return v, nil
		}
	}
	switch op {
	case "+":
		return float(x.f + y.f)
	case "-":
		return float(x.f - y.f)
	case "*":
		return float(x.f * y.f)
	case "/":
		if y.f == 0 {
			return nil, errors.New("division by zero")
		}
		return float(x.f / y.f)
	case "%":
		if y.isInt && y.i == 0 {
			return nil, errors.New("division by zero")
		}
		return nil, errors.New(`"%" needs two whole numbers`)
	}
	return float(math.Pow(x.f, y.f))
}

// integer computes in int64; ok is false where the exact result is not one.
func integer(op string, a, b int64) (v int64, ok bool) {
	switch op {
	case "+":
		v = a + b
		return v, (v > a) == (b > 0)
	case "-":
		v = a - b
		return v, (v < a) == (b > 0)
	case "*":
		return multiply(a, b)
	case "%":
		if b != 0 {
			return a % b, true
		}
	case "/":
		if b != 0 && b != -1 && a%b == 0 {
			return a / b, true
		}
	}
	return 0, false
}

func multiply(a, b int64) (int64, bool) {
	abs := func(n int64) uint64 {
		if n < 0 {
			return -uint64(n)
		}
		return uint64(n)
	}
	hi, lo := bits.Mul64(abs(a), abs(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return -int64(lo), true
	}
	return int64(lo), true
}

func negate(v any) (any, error) {
	n, ok, err := toNum(v)
	switch {
	case !ok:
		return nil, fmt.Errorf(`"-" needs a number, not %s`, aType(v))
	case err != nil:
		return nil, err
	case n.isInt && n.i != math.MinInt64:
		return -n.i, nil
	}
	return -n.f, nil
}

// compareNumbers orders two numbers exactly, also those that neither int64 nor float64 can hold.
func (r *run) compareNumbers(a, b any) (int, error) {
	x, okX := a.(int64)
	y, okY := b.(int64)
	if okX && okY {
		return order(x, y), nil
	}
	s, t := string(appendScalar(nil, a)), string(appendScalar(nil, b))
	if err := r.spendText(len(s) + len(t)); err != nil {
		return 0, err
	}
	if s == t {
		return 0, nil
	}
	return parseDecimal(s).compare(parseDecimal(t)), nil
}

func order[T int | int64 | string](a, b T) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// decimal is ±0.digits × 10^exp, digits without zeros at either end; zero has none.
type decimal struct {
	negative bool
	digits   string
	exp      int
}

// parseDecimal reads the text of a JSON number. Exponents beyond ±10^9 are cut there.
func parseDecimal(s string) decimal {
	var d decimal
	s, d.negative = strings.CutPrefix(s, "-")
	exp := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(s[i+1:])
		if err != nil && s[i+1] == '-' {
			n = math.MinInt32
		} else if err != nil {
			n = math.MaxInt32
		}
		exp, s = max(-1e9, min(1e9, n)), s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.exp = exp + len(whole) - (len(whole) + len(fraction) - len(digits))
	if d.digits = strings.TrimRight(digits, "0"); d.digits == "" {
		return decimal{}
	}
	return d
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

func (d decimal) compare(o decimal) int {
	sign := d.sign()
	if c := order(sign, o.sign()); c != 0 || sign == 0 {
		return c
	}
	c := order(d.exp, o.exp)
	if c == 0 {
		c = order(d.digits, o.digits)
	}
	return c * sign
}
