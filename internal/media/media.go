// Package media owns what bodies that are no JSON mean as JSON values, and the other way round: XML, forms, CSV and
// lines of JSON. It promises that what it reads is bounded, that nothing in it is expanded or fetched, and that what it
// makes can be stored. It must not know who sends a body, or what for.
package media

import (
	"strings"

	"flowlane/internal/expr"
)

// ByteOrderMark may stand before a text in UTF-8.
var ByteOrderMark = []byte("\xef\xbb\xbf")

// AppendText appends a string of JSON: what is not UTF-8, and NUL, which nothing behind this service can store, becomes
// U+FFFD.
func AppendText(dst []byte, text string) []byte {
	return expr.AppendJSONString(dst, strings.ReplaceAll(text, "\x00", "\ufffd"))
}
