package query

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
)

func TestMessagePattern(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "",
		"phone must be E.164":     "phone must be E.164",
		"Contact 12345 exists":    "Contact # exists",
		"Contact already exists.": "Contact already exists.",
		"Object not found. objectId are usually numeric.":   "Object not found. objectId are usually numeric.",
		`Property "age" was not valid`:                      `Property "#" was not valid`,
		"Email 'a@b.example' isn't free":                    "Email '#' isn't free",
		"don't use a@b.example, can't":                      "don't use #, can't",
		"No list 6a1f0c1b-7c3e-7a52-9d3b-5d5b0c6f1a11 here": "No list # here",
		"row 3: bad; row 4: bad":                            "row #: bad; row #: bad",
		"The provider refused the call (status 422)":        "The provider refused the call (status 422)",
		"until 2026-11-23T10:00:00Z, not before":            "until #, not before",
		"cus_9s6XKzkNRiz8i3 is gone":                        "# is gone",
		"`x` and `y`":                                       "`#` and `#`",
		`a "quote that never ends`:                          `a "quote that never ends`,
		"größer als 10 €":                                   "größer als # €",
		"dial 10.0.0.7:443: refused":                        "dial #: refused",
		"status 4222":                                       "status #",
		"Zu viele: 7/10":                                    "Zu viele: #",
		"\"\" is empty":                                     "\"\" is empty",
		"tab\tand \xff and \x00":                            "tab\tand \xff and \x00",
		"see https://docs.example/errors/v3":                "see #",
	} {
		assert.Equal(t, want, messagePattern(text), text)
	}
}

// TestMessagePattern_Alike: messages that differ in an id, a number or a quoted text have one pattern, and no pattern
// takes long or grows.
func TestMessagePattern_Alike(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		fill := func() string {
			switch r.IntN(4) {
			case 0:
				return strconv.Itoa(r.IntN(1e9))
			case 1:
				return uuid.NewString()
			case 2:
				return "user" + strconv.Itoa(r.IntN(99)) + "@mail.example"
			default:
				return strings.Repeat("ab", r.IntN(20)+4) + strconv.Itoa(r.IntN(1e6))
			}
		}
		message := func() string { return "Record " + fill() + " of '" + fill() + "' is no good (" + fill() + ")" }
		assert.Equal(t, "Record # of '#' is no good (#)", messagePattern(message()), "seed %d", seed)
		text := make([]byte, r.IntN(300))
		for i := range text {
			const letters = "ab 1'\"@.`\xc3\xa9"
			text[i] = letters[r.IntN(len(letters))]
		}
		assert.LessOrEqual(t, len(messagePattern(string(text))), len(text), "seed %d: %q", seed, text)
	}
}
