package dialersim

// rowScanner takes the wanted values out of rows. Rows of one upload mostly look alike: it remembers what stood between
// the values of the last row, and where the next row has the same there, only the values are left to check.
type rowScanner struct {
	body   []byte
	wanted []string
	shape  []member
}

// member is what stood before one value of the last row: the bytes from the value before it, and the place of its name
// among the wanted ones, or -1.
type member struct {
	lead   []byte
	wanted int
}

// scan checks the row at i, puts the values of the wanted names into values, which lie in the same order, and returns
// the position after the row. The last of two equal names counts.
func (s *rowScanner) scan(i int, values []span) int {
	// A value that was found before the looks differ is in the row all the same: it needs no clearing.
	if end := s.scanAlike(i, values); end >= 0 {
		return end
	}
	return s.scanAny(i, values)
}

// scanAlike scans a row that looks like the last one; -1 when it does not.
func (s *rowScanner) scanAlike(i int, values []span) int {
	b := s.body
	if len(s.shape) == 0 {
		return -1
	}
	for k := range s.shape {
		m := &s.shape[k]
		if len(b)-i <= len(m.lead) || string(b[i:i+len(m.lead)]) != string(m.lead) {
			return -1
		}
		i += len(m.lead)
		from := i
		if b[i] == '"' {
			i = skipString(b, i)
		} else {
			i = skipValue(b, i, 2)
		}
		if i < 0 {
			return -1
		}
		if m.wanted >= 0 {
			values[m.wanted] = span{int32(from), int32(i)}
		}
	}
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	return -1
}

// scanAny scans a row of any look and remembers it.
func (s *rowScanner) scanAny(i int, values []span) int {
	b := s.body
	s.shape = s.shape[:0]
	if i >= len(b) || b[i] != '{' {
		return bad(i)
	}
	lead := i
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		var name span
		if i, name = scanName(b, i); i < 0 {
			return i
		}
		m, at := member{lead: b[lead:i], wanted: -1}, i
		if i = skipValue(b, i, 2); i < 0 {
			return i
		}
		for k, w := range s.wanted {
			if isName(b, name, w) {
				values[k], m.wanted = span{int32(at), int32(i)}, k
			}
		}
		s.shape = append(s.shape, m)
		lead = i
		more := false
		if i, more = scanNext(b, i, '}'); !more {
			return i
		}
	}
}
