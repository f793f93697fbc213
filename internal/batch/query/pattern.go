package query

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// What a pattern has in the place of what differs from record to record.
const varies = "#"

// messagePattern is a message without what belongs to one record alone, so that errors of one cause look alike:
// numbers, ids, addresses and what stands in quotes are "#" there.
func messagePattern(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		if n := quoted(text, b.Len() == 0 || endsWord(b.String())); n > 0 {
			b.WriteString(text[:1] + varies + text[n-1:n])
			text = text[n:]
			continue
		}
		n := wordLength(text)
		if n == 0 {
			_, n = utf8.DecodeRuneInString(text)
			b.WriteString(text[:n])
		} else {
			writeWord(&b, text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// maxQuoted bounds what counts as one text in quotes.
const maxQuoted = 200

// quoted is the length of the quoted text at the beginning, with its quotes; 0 where none begins. An apostrophe within
// a word begins none.
func quoted(text string, fresh bool) int {
	quote := text[0]
	if quote != '"' && quote != '`' && (quote != '\'' || !fresh) {
		return 0
	}
	end := strings.IndexByte(text[1:min(len(text), maxQuoted)], quote)
	if end <= 0 {
		return 0
	}
	n := end + 2
	if next, _ := utf8.DecodeRuneInString(text[n:]); n < len(text) && (unicode.IsLetter(next) ||
		unicode.IsDigit(next)) {
		return 0
	}
	return n
}

func endsWord(text string) bool {
	last, _ := utf8.DecodeLastRuneInString(text)
	return !unicode.IsLetter(last) && !unicode.IsDigit(last)
}

// wordLength is the length of the word at the beginning: letters, digits, and what joins them in ids and addresses.
func wordLength(text string) int {
	n := strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.@+/:", r)
	})
	if n < 0 {
		n = len(text)
	}
	return len(strings.TrimRight(text[:n], ".:-/+"))
}

// longID is from how many characters a word of letters and digits is an id rather than a name such as E.164 or v2.
const longID = 8

func writeWord(b *strings.Builder, word string) {
	digits := strings.ContainsFunc(word, unicode.IsDigit)
	letters := strings.ContainsFunc(word, unicode.IsLetter)
	switch {
	case len(word) == len("404") && strings.HasSuffix(b.String(), "status "):
		b.WriteString(word) // which is no detail of a record
	case strings.Contains(word, "@"), digits && !letters, digits && len(word) >= longID:
		b.WriteString(varies)
	default:
		b.WriteString(word)
	}
}
