package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

func toPairs(r *run, name string, a []any) (any, error) {
	obj, ok := a[0].(*object)
	if !ok {
		return nil, needs(name, "an object", a[0])
	}
	if err := r.spend(3 * len(obj.keys)); err != nil {
		return nil, err
	}
	list := make([]any, len(obj.keys))
	for i, k := range obj.keys {
		list[i] = []any{k, obj.vals[i]}
	}
	return list, nil
}

func fromPairs(r *run, name string, a []any) (any, error) {
	list, ok := a[0].([]any)
	if !ok {
		return nil, needs(name, "an array", a[0])
	}
	obj := &object{}
	for _, e := range list {
		pair, _ := e.([]any)
		if len(pair) != 2 {
			return nil, fmt.Errorf("%s needs pairs as in [[\"key\", 1]]", name)
		}
		key, ok := pair[0].(string)
		if !ok {
			return nil, needs(name, "a string as the key of each pair", pair[0])
		}
		if err := r.spendText(len(key)); err != nil {
			return nil, err
		}
		obj.set(key, pair[1])
	}
	return obj, nil
}

// merge gives an object with the fields of all; of those with one name the last counts.
func merge(r *run, name string, a []any) (any, error) {
	out := &object{}
	for _, v := range a {
		obj, ok := v.(*object)
		if !ok {
			return nil, needs(name, "objects", v)
		}
		for i, k := range obj.keys {
			if err := r.spendText(len(k)); err != nil {
				return nil, err
			}
			out.set(k, obj.vals[i])
		}
	}
	return out, nil
}

func concat(r *run, name string, a []any) (any, error) {
	out := []any{}
	for _, v := range a {
		list, ok := v.([]any)
		if !ok {
			return nil, needs(name, "arrays", v)
		}
		if err := r.spend(len(list)); err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// uniq keeps the first of equal elements. Only arrays and objects are compared with each other one by one.
func uniq(r *run, name string, a []any) (any, error) {
	list, ok := a[0].([]any)
	if !ok {
		return nil, needs(name, "an array", a[0])
	}
	out, nested := []any{}, []any{}
	seen := map[any]bool{}
	for _, e := range list {
		if n, ok := e.(number); ok { // before its digits are read
			if err := r.spendText(len(n)); err != nil {
				return nil, err
			}
		}
		key, ok := scalarKey(e)
		if !ok {
			known, err := in(r, name, e, nested)
			if err != nil {
				return nil, err
			}
			if known == false {
				out, nested = append(out, e), append(nested, e)
			}
			continue
		}
		s, _ := e.(string)
		if err := r.spendText(len(s)); err != nil {
			return nil, err
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, e)
		}
	}
	return out, nil
}

// scalarKey returns the same for values that are equal; ok is false for arrays and objects.
func scalarKey(v any) (key any, ok bool) {
	switch v.(type) {
	case nil, bool, string:
		return v, true
	case []any, *object:
		return nil, false
	}
	return parseDecimal(string(appendScalar(nil, v))), true
}

func sortList(r *run, name string, a []any) (any, error) {
	list, ok := a[0].([]any)
	if !ok {
		return nil, needs(name, "an array", a[0])
	}
	var direction any
	if len(a) == 2 {
		direction = a[1]
	}
	return r.sorted(name, list, list, direction)
}

// sorted orders a list by keys, one for each element; elements with equal keys stay as they were.
func (r *run) sorted(name string, list, keys []any, direction any) (any, error) {
	sign := 1
	switch direction {
	case nil, "asc":
	case "desc":
		sign = -1
	default:
		return nil, fmt.Errorf(`the order of %s must be "asc" or "desc"`, name)
	}
	for _, k := range keys {
		if t := typeName(k); t != "number" && t != "string" {
			return nil, needs(name, "numbers or strings", k)
		}
		if typeName(k) != typeName(keys[0]) {
			return nil, fmt.Errorf("%s needs only numbers or only strings, not both", name)
		}
	}
	if err := r.spend(2 * len(list)); err != nil {
		return nil, err
	}
	at := make([]int, len(list))
	for i := range at {
		at[i] = i
	}
	var failed error
	slices.SortStableFunc(at, func(i, j int) int {
		if failed == nil {
			failed = r.spend(1)
		}
		if failed != nil {
			return 0
		}
		var c int
		c, failed = r.compare(name, keys[i], keys[j])
		return c * sign
	})
	out := make([]any, len(list))
	for i, j := range at {
		out[i] = list[j]
	}
	return out, failed
}

// indexOf finds an element of an array or a part of a string, which is counted in characters; -1 is nowhere.
func indexOf(r *run, name string, a []any) (any, error) {
	switch v := a[0].(type) {
	case string:
		part, ok := a[1].(string)
		if !ok {
			return nil, needs(name, "a string to look for in a string", a[1])
		}
		if err := r.spendText(len(v) + len(part)); err != nil {
			return nil, err
		}
		before, _, found := strings.Cut(v, part)
		if !found {
			return int64(-1), nil
		}
		return int64(utf8.RuneCountInString(before)), nil
	case []any:
		for i, e := range v {
			if same, err := r.equal(a[1], e, 0); same || err != nil {
				return int64(i), err
			}
		}
		return int64(-1), nil
	}
	return nil, needs(name, "a string or an array", a[0])
}

// numbers is range: the whole numbers from 0 or the first argument up to, but not including, the last.
func numbers(r *run, name string, a []any) (any, error) {
	ends := [2]int64{}
	for i, v := range a {
		n, ok := toInt(v)
		if !ok {
			return nil, needs(name, "whole numbers", v)
		}
		ends[2-len(a)+i] = n
	}
	from, to := ends[0], ends[1]
	if to <= from {
		return []any{}, nil
	}
	// The difference may be more than an int64 holds.
	if uint64(to)-uint64(from) > maxFuel {
		return nil, errors.New("the range has too many numbers")
	}
	if err := r.spend(int(to - from)); err != nil {
		return nil, err
	}
	list := make([]any, 0, to-from)
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list, nil
}
