package expr

import "fmt"

// ScanFields finds top-level fields of a JSON object in one walk, without allocation: out[i] becomes the span of the
// value of names[i] in raw, or nil if there is none (always, if raw is not an object). The spans share raw's memory.
// Names must be distinct. Of a duplicate key the last one counts, and an escaped key equals its plain form. The error
// tells the offset of the first byte that is not JSON; then out is undefined.
func ScanFields(raw []byte, names []string, out [][]byte) error {
	set := fieldSet{names: names}
	return set.scan(raw, out)
}

// fieldSet is a set of field names with a small hash index; without the index (heads nil) names are searched in order.
type fieldSet struct {
	names []string
	heads *[64]int16
	next  []int16
}

// index builds the hash index, which pays from a handful of names on.
func (s *fieldSet) index() {
	if len(s.names) < 4 {
		return
	}
	s.heads, s.next = new([64]int16), make([]int16, len(s.names))
	for i := range s.heads {
		s.heads[i] = -1
	}
	for i, name := range s.names {
		h := hashName(name)
		s.next[i], s.heads[h] = s.heads[h], int16(i)
	}
}

// hashName mixes length, first and last byte: field names of one record seldom agree in all three.
func hashName[T string | []byte](name T) uint {
	n := uint(len(name))
	if n == 0 {
		return 0
	}
	return (n*7 + uint(name[0])*5 + uint(name[n-1])) % 64
}

func (s *fieldSet) find(key []byte) int {
	if s.heads == nil {
		for i, name := range s.names {
			if name == string(key) {
				return i
			}
		}
		return -1
	}
	for i := s.heads[hashName(key)]; i >= 0; i = s.next[i] {
		if s.names[i] == string(key) {
			return int(i)
		}
	}
	return -1
}

// scan is ScanFields for a prepared set.
func (s *fieldSet) scan(raw []byte, out [][]byte) error {
	clear(out)
	end := s.walk(raw, out)
	if end >= 0 {
		if end = skipSpace(raw, end); end == len(raw) {
			return nil
		}
		end = ^end
	}
	return fmt.Errorf("not valid JSON at byte %d", ^end)
}

// walk returns the index after the value, or the complement of the offset of the first bad byte.
func (s *fieldSet) walk(raw []byte, out [][]byte) int {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return skipValue(raw, i, 0)
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == '}' {
		return i + 1
	}
	for {
		field, value := s.key(raw, i)
		if value < 0 {
			return value
		}
		end := skipValue(raw, value, 1)
		if end < 0 {
			return end
		}
		if field >= 0 {
			out[field] = raw[value:end:end]
		}
		i = skipSpace(raw, end)
		if i >= len(raw) {
			return ^i
		}
		if raw[i] == '}' {
			return i + 1
		}
		if raw[i] != ',' {
			return ^i
		}
		i = skipSpace(raw, i+1)
	}
}

// key reads a key and its colon at i: it returns which field of the set it names (-1: none) and where the value starts,
// or a negative start as walk does.
func (s *fieldSet) key(raw []byte, i int) (field, value int) {
	end, escaped := skipKey(raw, i)
	if end < 0 {
		return -1, end
	}
	if name := raw[i+1 : end-1]; escaped {
		var buf [64]byte
		field = s.find(appendUnescaped(buf[:0], name))
	} else {
		field = s.find(name)
	}
	return field, skipColon(raw, end)
}

// descend follows a path from a JSON value: nil if it leads nowhere (a missing field, an index out of range, a field of
// something that is not an object).
func descend(raw []byte, path []segment) ([]byte, error) {
	for i := range path {
		seg := &path[i]
		if len(raw) == 0 {
			return nil, nil
		}
		if !seg.isIndex {
			var out [1][]byte
			set := fieldSet{names: seg.names}
			if err := set.scan(raw, out[:]); err != nil {
				return nil, err
			}
			raw = out[0]
			continue
		}
		var err error
		if raw, err = element(raw, seg.index); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// element returns an element of an array, counted from the end if the index is negative; nil if there is none.
func element(raw []byte, index int) ([]byte, error) {
	raw, err := checkJSON(raw)
	if err != nil || raw[0] != '[' {
		return nil, err
	}
	if index < 0 {
		if index += countElements(raw); index < 0 {
			return nil, nil
		}
	}
	i := skipSpace(raw, 1)
	for n := 0; raw[i] != ']'; n++ {
		end := skipValue(raw, i, 0)
		if n == index {
			return raw[i:end:end], nil
		}
		i = nextElement(raw, end)
	}
	return nil, nil
}

// countElements counts the elements of an array that is known to be valid.
func countElements(raw []byte) int {
	n := 0
	for i := skipSpace(raw, 1); raw[i] != ']'; n++ {
		i = nextElement(raw, skipValue(raw, i, 0))
	}
	return n
}

// nextElement returns the index of what follows a value inside a valid array or object: the next one, or the bracket.
func nextElement(raw []byte, end int) int {
	i := skipSpace(raw, end)
	if raw[i] == ',' {
		i = skipSpace(raw, i+1)
	}
	return i
}
