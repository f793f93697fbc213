package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// formatVerb finds every "%"; the groups are empty where what follows is none of the verbs. Two digits bound the width.
var formatVerb = regexp.MustCompile(`%(?:([-0]?\d{0,2}(?:\.\d{1,2})?)([sdf])|(%))?`)

// format fills a pattern: %s takes any value as text, %d a whole number, %f a number, each with a width and precision
// if wanted; %% is a percent sign.
func format(r *run, name string, a []any) (any, error) {
	pattern, ok := a[0].(string)
	if !ok {
		return nil, needs(name, "a string as its pattern", a[0])
	}
	if err := r.spend(len(pattern)); err != nil {
		return nil, err
	}
	var b strings.Builder
	rest, end := a[1:], 0
	for _, m := range formatVerb.FindAllStringSubmatchIndex(pattern, -1) {
		b.WriteString(pattern[end:m[0]])
		end = m[1]
		switch {
		case m[6] >= 0:
			b.WriteByte('%')
			continue
		case m[4] < 0:
			return nil, errors.New(`the pattern of format may hold %s, %d, %f, with a width as in %5.2f, and %%`)
		case len(rest) == 0:
			return nil, errors.New("the pattern of format asks for more values than are given")
		}
		s, err := r.verb(pattern[m[2]:m[3]], pattern[m[4]], rest[0])
		if err != nil {
			return nil, err
		}
		rest = rest[1:]
		b.WriteString(s)
	}
	if len(rest) > 0 {
		return nil, errors.New("the pattern of format asks for fewer values than are given")
	}
	b.WriteString(pattern[end:])
	return b.String(), r.text(b.Len())
}

// verb writes one value; size is its width and precision.
func (r *run) verb(size string, verb byte, v any) (string, error) {
	switch verb {
	case 'd':
		n, ok := toInt(v)
		if !ok {
			return "", needs("%d of format", "a whole number", v)
		}
		return fmt.Sprintf("%"+size+"d", n), nil
	case 'f':
		n, ok, err := toNum(v)
		if !ok {
			return "", needs("%f of format", "a number", v)
		}
		return fmt.Sprintf("%"+size+"f", n.f), err
	}
	s, err := r.textOf(v)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%"+size+"s", s), r.spendText(len(s))
}
