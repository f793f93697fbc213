package cli

import (
	"fmt"
	"io"
)

// sample makes up records, always the same.
type sample struct {
	records, next int
	row           []byte
}

var (
	sampleNames = []string{"Ada", "Bashir", "Chiara", "Dmitri", "Esra", "Femi", "Greta", "Hugo", "Inés", "Jürgen",
		"Kiri", "Łukasz", "Mei"}
	sampleCities = []string{"Athens", "Bergen", "Córdoba", "Dakar", "Essen", "Fès", "Genoa", "Hanoi", "Izmir",
		"Jakarta", "Kraków"}
)

// Next returns one record: who to call, and where.
func (s *sample) Next() ([]byte, error) {
	if s.next == s.records {
		return nil, io.EOF
	}
	s.next++
	s.row = fmt.Appendf(s.row[:0], `{"id":"%d","name":"%s","city":"%s","phone":"+4930%07d","balance":%d.%02d}`,
		s.next, sampleNames[s.next%len(sampleNames)], sampleCities[s.next%len(sampleCities)], s.next, s.next*7%500,
		s.next%100)
	return s.row, nil
}

// Close implements io.Closer.
func (*sample) Close() error { return nil }
