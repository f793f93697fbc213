package expr

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"

	"flowlane/internal/suggest"
)

// function is a pure function of its arguments, of which it takes min to max.
type function struct {
	min, max int
	call     func(r *run, name string, args []any) (any, error)
}

// functions holds every function but the predicates. Each one pays for its work before it does it.
var functions = map[string]function{
	"len":        {1, 1, length},
	"type":       {1, 1, func(_ *run, _ string, a []any) (any, error) { return typeName(a[0]), nil }},
	"lower":      {1, 1, mapText(strings.ToLower)},
	"upper":      {1, 1, mapText(strings.ToUpper)},
	"trim":       {1, 2, trim},
	"trimPrefix": {2, 2, trimPart(strings.TrimPrefix)},
	"trimSuffix": {2, 2, trimPart(strings.TrimSuffix)},
	"hasPrefix":  {2, 2, textFunction(textTest(strings.HasPrefix))},
	"hasSuffix":  {2, 2, textFunction(textTest(strings.HasSuffix))},
	"split":      {2, 3, splitText},
	"join":       {1, 2, join},
	"replace":    {3, 4, replace},
	"int":        {1, 1, toInteger},
	"float":      {1, 1, toFloat},
	"string":     {1, 1, func(r *run, _ string, a []any) (any, error) { return r.textOf(a[0]) }},
	"toJSON":     {1, 1, func(r *run, _ string, a []any) (any, error) { return r.toJSON(a[0]) }},
	"fromJSON":   {1, 1, fromJSON},
	"toBase64":   {1, 1, toBase64},
	"fromBase64": {1, 1, fromBase64},
	"abs":        {1, 1, abs},
	"ceil":       {1, 1, rounding(math.Ceil)},
	"floor":      {1, 1, rounding(math.Floor)},
	"round":      {1, 1, rounding(math.Round)},
	"min":        {1, MaxSource, extreme(-1)},
	"max":        {1, MaxSource, extreme(1)},
	"first":      {1, 1, elementFunction(0)},
	"last":       {1, 1, elementFunction(-1)},
	"keys":       {1, 1, keys},
	"values":     {1, 1, values},
	"get":        {2, 2, func(r *run, _ string, a []any) (any, error) { return r.field(a[0], a[1]) }},
	"toPairs":    {1, 1, toPairs},
	"fromPairs":  {1, 1, fromPairs},
	"merge":      {1, MaxSource, merge},
	"concat":     {1, MaxSource, concat},
	"uniq":       {1, 1, uniq},
	"sort":       {1, 2, sortList},
	"indexOf":    {2, 2, indexOf},
	"range":      {1, 2, numbers},
	"substring":  {2, 3, substring},
	"format":     {1, MaxSource, format},
	"urlEncode":  {1, 1, mapText(urlEncode)},
	"sha256":     {1, 1, mapText(sha256Hex)},
	"md5":        {1, 1, mapText(md5Hex)},
	"hmacSha256": {2, 2, hmacSha256},
	"uuid5":      {2, 2, uuid5},

	"date":        {1, 3, date},
	"formatDate":  {2, 3, formatDate},
	"addDuration": {2, 2, addDuration},
	"inTimezone":  {2, 2, inTimezone},
	"unix":        {1, 1, unix},

	// These two are compiled by themselves: the one reads the batch, the other stops at the first value.
	"now":      {0, 0, nil},
	"coalesce": {1, MaxSource, nil},
}

func functionNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(functions)), maps.Keys(folds))
	names = slices.AppendSeq(names, maps.Keys(loopArguments))
	slices.Sort(names)
	return slices.Compact(names)
}

func isFunction(name string) bool {
	_, ok := functions[name]
	return ok || isPredicate(name)
}

// call compiles a call of a function or predicate.
func (c *compiler) call(name string, args []ast.Node) (evaluator, error) {
	if isPredicate(name) {
		return c.predicate(name, args)
	}
	f, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("unknown function %q%s", name, suggest.DidYouMean(name, functionNames()))
	}
	if len(args) < f.min || len(args) > f.max {
		return nil, fmt.Errorf("%s takes %s, not %d", name, f.arity(), len(args))
	}
	if name == "now" {
		return c.now()
	}
	list, err := c.compileAll(args)
	if err != nil {
		return nil, err
	}
	if name == "coalesce" {
		return firstValue(list), nil
	}
	return func(r *run) (any, error) {
		values, err := evalAll(r, list)
		if err != nil {
			return nil, err
		}
		if err := r.spend(1 + len(values)); err != nil {
			return nil, err
		}
		return f.call(r, name, values)
	}, nil
}

// firstValue is coalesce: what follows the first value that is not null is not asked.
func firstValue(list []evaluator) evaluator {
	return func(r *run) (any, error) {
		for _, e := range list {
			if v, err := e(r); v != nil || err != nil {
				return v, err
			}
		}
		return nil, nil
	}
}

func (f function) arity() string {
	switch {
	case f.max == MaxSource:
		return fmt.Sprintf("at least %d argument", f.min)
	case f.max == 0:
		return "no arguments"
	case f.min != f.max:
		return fmt.Sprintf("%d to %d arguments", f.min, f.max)
	case f.min == 1:
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", f.min)
}

func needs(name, what string, v any) error {
	return fmt.Errorf("%s needs %s, not %s", name, what, aType(v))
}

func length(r *run, name string, a []any) (any, error) {
	switch v := a[0].(type) {
	case string:
		return int64(utf8.RuneCountInString(v)), r.spendText(len(v))
	case []any:
		return int64(len(v)), nil
	case *object:
		return int64(len(v.keys)), nil
	}
	return nil, needs(name, "a string, an array or an object", a[0])
}

func toInteger(r *run, name string, a []any) (any, error) {
	if s, ok := a[0].(string); ok {
		if len(s) > 64 {
			return nil, errors.New("the text given to int is not a whole number")
		}
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil {
			return nil, errors.New("the text given to int is not a whole number that fits in 64 bits")
		}
		return n, nil
	}
	n, ok, err := toNum(a[0])
	switch {
	case !ok:
		return nil, needs(name, "a number or a string", a[0])
	case err != nil:
		return nil, err
	case n.isInt:
		return n.i, nil
	}
	whole, ok := toInt(math.Trunc(n.f))
	if !ok {
		return nil, errRange
	}
	return whole, nil
}

func toFloat(r *run, name string, a []any) (any, error) {
	if s, ok := a[0].(string); ok {
		s = strings.TrimSpace(s)
		if err := r.spendText(len(s)); err != nil {
			return nil, err
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, errors.New("the text given to float is not a number")
		}
		return float(f)
	}
	n, ok, err := toNum(a[0])
	if !ok {
		return nil, needs(name, "a number or a string", a[0])
	}
	return n.f, err
}

func fromJSON(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(s[0]) == "" {
		return nil, errors.New("the text given to fromJSON is empty")
	}
	v, err := r.decode([]byte(s[0]))
	if err != nil && !errors.Is(err, errFuel) {
		return nil, fmt.Errorf("the text given to fromJSON is %w", err)
	}
	return v, err
}

func abs(r *run, name string, a []any) (any, error) {
	n, ok, err := toNum(a[0])
	switch {
	case !ok:
		return nil, needs(name, "a number", a[0])
	case err != nil:
		return nil, err
	case n.f < 0:
		return negate(a[0])
	}
	return a[0], nil
}

func rounding(f func(float64) float64) func(*run, string, []any) (any, error) {
	return func(_ *run, name string, a []any) (any, error) {
		n, ok, err := toNum(a[0])
		switch {
		case !ok:
			return nil, needs(name, "a number", a[0])
		case err != nil:
			return nil, err
		case n.isInt:
			return n.i, nil
		}
		return f(n.f), nil
	}
}

// extreme finds the smallest (sign -1) or largest (1) of its arguments, or of the one array it is given; an empty array
// gives null.
func extreme(sign int) func(*run, string, []any) (any, error) {
	return func(r *run, name string, a []any) (any, error) {
		if list, ok := a[0].([]any); ok && len(a) == 1 {
			a = list
		}
		var best any
		for i, v := range a {
			if typeName(v) != "number" {
				return nil, needs(name, "numbers", v)
			}
			if i == 0 {
				best = v
				continue
			}
			c, err := r.compareNumbers(v, best)
			if err != nil {
				return nil, err
			}
			if c == sign {
				best = v
			}
		}
		return best, r.spend(len(a))
	}
}

func elementFunction(index int64) func(*run, string, []any) (any, error) {
	return func(r *run, name string, a []any) (any, error) {
		if _, ok := a[0].([]any); !ok && a[0] != nil {
			return nil, needs(name, "an array", a[0])
		}
		return r.field(a[0], index)
	}
}

func keys(r *run, name string, a []any) (any, error) {
	obj, ok := a[0].(*object)
	if !ok {
		return nil, needs(name, "an object", a[0])
	}
	list := make([]any, len(obj.keys))
	for i, k := range obj.keys {
		list[i] = k
	}
	return list, r.spend(len(list))
}

func values(r *run, name string, a []any) (any, error) {
	obj, ok := a[0].(*object)
	if !ok {
		return nil, needs(name, "an object", a[0])
	}
	return append([]any{}, obj.vals...), r.spend(len(obj.vals))
}
