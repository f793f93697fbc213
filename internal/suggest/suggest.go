// Package suggest guesses which known name was meant by one that is not known. It promises that a guess is either near,
// by few edits or by all of its words, or not made, and that it takes bounded time: names of more than 128 bytes are
// not compared. It knows no resource.
package suggest

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// longest bounds names that are compared: the work grows with the square of their length.
const longest = 128

// Nearest returns the known name that is most like name; empty if none is. Names are alike by few edits, one in six of
// their characters and two at most of short ones, or if one has all words of the other: create_contact is in
// hubspot__crm__create_contact.
func Nearest(name string, known []string) string {
	if len(name) > longest {
		return ""
	}
	lower := strings.ToLower(name)
	best, least := "", tolerance(lower)+1
	for _, k := range known {
		if d := len(k) - len(name); len(k) > longest || d >= least || -d >= least {
			continue
		}
		if d := edits(lower, strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		best = byWords(lower, known)
	}
	return best
}

// DidYouMean ends a message about a name that is not known: it asks for the nearest one; empty if none is near.
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

func tolerance(name string) int {
	if len(name) < 4 {
		return 1
	}
	return max(2, len(name)/6)
}

// byWords returns the shortest known name that has every word of name, which must have two.
func byWords(name string, known []string) (best string) {
	words := wordsOf(name)
	if len(words) < 2 {
		return ""
	}
	for _, k := range known {
		if len(k) > longest || best != "" && len(k) >= len(best) {
			continue
		}
		has := wordsOf(strings.ToLower(k))
		if !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(has, w) }) {
			best = k
		}
	}
	return best
}

func wordsOf(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// edits counts by how many edits two names differ; two neighbours that changed places are one.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
