package expr

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// stringArgs checks that all arguments are strings and pays for reading them.
func stringArgs(r *run, name string, args []any) ([]string, error) {
	list := make([]string, len(args))
	for i, a := range args {
		s, ok := a.(string)
		if !ok {
			return nil, needs(name, "a string", a)
		}
		list[i] = s
		if err := r.spendText(len(s)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func mapText(f func(string) string) func(*run, string, []any) (any, error) {
	return func(r *run, name string, a []any) (any, error) {
		s, err := stringArgs(r, name, a)
		if err != nil {
			return nil, err
		}
		out := f(s[0])
		return out, r.text(len(out))
	}
}

func trim(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a)
	if err != nil {
		return nil, err
	}
	if len(s) == 1 {
		return strings.TrimSpace(s[0]), nil
	}
	// Trim compares every character of the text with every one of the set.
	if err := r.spend(len(s[0]) * len(s[1]) / 16); err != nil {
		return nil, err
	}
	return strings.Trim(s[0], s[1]), nil
}

func trimPart(f func(s, part string) string) func(*run, string, []any) (any, error) {
	return func(r *run, name string, a []any) (any, error) {
		s, err := stringArgs(r, name, a)
		if err != nil {
			return nil, err
		}
		return f(s[0], s[1]), nil
	}
}

func textFunction(op binaryOp) func(*run, string, []any) (any, error) {
	return func(r *run, name string, a []any) (any, error) { return op(r, name, a[0], a[1]) }
}

// count reads the optional last argument of split and replace: how many parts or replacements; -1 is all.
func count(name string, a []any, at int) (int, error) {
	if len(a) <= at {
		return -1, nil
	}
	n, ok := toInt(a[at])
	if !ok {
		return 0, needs(name, "a whole number as its last argument", a[at])
	}
	return int(max(-1, min(n, MaxResult))), nil
}

func splitText(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a[:2])
	if err != nil {
		return nil, err
	}
	n, err := count(name, a, 2)
	if err != nil {
		return nil, err
	}
	if err := r.spend(strings.Count(s[0], s[1]) + 1); err != nil {
		return nil, err
	}
	parts := strings.SplitN(s[0], s[1], n)
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list, nil
}

func join(r *run, name string, a []any) (any, error) {
	list, ok := a[0].([]any)
	if !ok {
		return nil, needs(name, "an array", a[0])
	}
	sep := ""
	if len(a) == 2 {
		if sep, ok = a[1].(string); !ok {
			return nil, needs(name, "a string between the parts", a[1])
		}
	}
	if err := r.spend(len(list)); err != nil {
		return nil, err
	}
	size, parts := 0, make([]string, len(list))
	for i, e := range list {
		s, err := r.textOf(e)
		if err != nil {
			return nil, err
		}
		parts[i] = s
		if size += len(s) + len(sep); size-len(sep) > MaxResult {
			return nil, errResult
		}
	}
	return strings.Join(parts, sep), r.spendText(size)
}

func replace(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a[:3])
	if err != nil {
		return nil, err
	}
	n, err := count(name, a, 3)
	if err != nil {
		return nil, err
	}
	found := strings.Count(s[0], s[1])
	if n >= 0 {
		found = min(found, n)
	}
	if err := r.text(len(s[0]) + found*(len(s[2])-len(s[1]))); err != nil {
		return nil, err
	}
	return strings.Replace(s[0], s[1], s[2], n), r.spend(found)
}

func toBase64(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a)
	if err != nil {
		return nil, err
	}
	if err := r.text(base64.StdEncoding.EncodedLen(len(s[0]))); err != nil {
		return nil, err
	}
	return base64.StdEncoding.EncodeToString([]byte(s[0])), nil
}

func fromBase64(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a)
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s[0])
	if err != nil || !utf8.Valid(b) {
		return nil, errors.New("the text given to fromBase64 is not base64 of a text")
	}
	return string(b), nil
}

// substring is text[from:to] as a function, so that it can follow "|".
func substring(r *run, name string, a []any) (any, error) {
	s, ok := a[0].(string)
	if !ok {
		return nil, needs(name, "a string", a[0])
	}
	var to evaluator
	if len(a) == 3 {
		to = constant(a[2])
	}
	return cutText(r, s, constant(a[1]), to)
}
