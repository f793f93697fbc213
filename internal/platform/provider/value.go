package provider

import (
	"bytes"
	"mime"
	"net/url"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"flowlane/internal/jsonraw"
	"flowlane/internal/media"
	"flowlane/internal/platform/catalog"
)

// maxParsed is how large an answer of XML or of a form may be, in bytes, to be read as such: it takes a multiple of it.
const maxParsed = 2 << 20

// parsing is how many answers are parsed at once: what that takes, some 30 MiB for the worst one, is not in the budget
// of memory.
var parsing = make(chan struct{}, runtime.GOMAXPROCS(0))

var answerBounds = media.Bounds{Depth: 64, Parts: 100_000}

// lineBounds are those of lines, which may be all of an answer.
var lineBounds = media.Bounds{Depth: 64, Parts: 1_000_000, Size: 24 << 20}

// envelopeLevels are the elements around what an envelope of SOAP answers: Envelope, Body and the response.
const envelopeLevels = 3

// Value is the body of an answer as JSON, by its type: JSON as it is; XML as an object, as package media reads it,
// names without their prefixes; lines of CSV or JSON as an array where act says so; a form as an object; plain text as
// a string. Of an envelope of SOAP it is what stands in the one element of its body. It is nil where there is no body,
// or one of another type, malformed, too deep or too large. Elements that act reads as lists are arrays, also where
// there is one; act may be nil.
func (a *Answer) Value(act *catalog.Action) []byte {
	if !a.valued {
		a.value, a.valued = a.parsed(act), true
	}
	return a.value
}

// maxDepth is how many levels of a text in JSON are read.
const maxDepth = 1000

// validJSON reports whether a text is JSON that can be read. What checks it calls itself at each level: a text of
// megabytes of brackets would take all the stack that a process may have, and end it.
func validJSON(text []byte) bool {
	return jsonraw.TooDeep(text, maxDepth) < 0 && gjson.ValidBytes(text)
}

func (a *Answer) parsed(act *catalog.Action) []byte {
	body := bytes.TrimSpace(a.Body)
	if a.form == "" && act != nil {
		a.As(act)
	}
	if a.form != "" && a.Err == nil && a.Status/100 == 2 && !strings.HasSuffix(mediaType(a), "/json") {
		return a.lines()
	}
	if len(body) == 0 || a.Err != nil {
		return nil
	}
	if !a.soap && validJSON(body) {
		return body
	}
	kind := mediaType(a)
	if len(body) > maxParsed {
		return nil
	}
	parsing <- struct{}{}
	defer func() { <-parsing }()
	var value []byte
	ok := false
	switch {
	case isXML(kind):
		read := media.Reading{Bounds: answerBounds, Local: true, Lists: listsOf(act)}
		if a.soap {
			read.Skip = envelopeLevels
		}
		if value, ok = media.XML(body, read); ok && a.soap {
			value, a.fault = openEnvelope(value)
			return value
		}
	case a.soap:
	case kind == "application/x-www-form-urlencoded":
		value, ok = media.Form(body, answerBounds)
	case (kind == "text/plain" || kind == "text/csv") && utf8.Valid(body):
		value, ok = media.AppendText(nil, string(a.Body)), true
	}
	if !ok {
		return nil
	}
	return value
}

// As has an answer read as that of an action, whichever action it is about.
func (a *Answer) As(act *catalog.Action) {
	if act.Call != nil {
		a.form = act.Call.Answer.Form
	}
}

// lines are the values of an answer's lines.
func (a *Answer) lines() (value []byte) {
	parsing <- struct{}{}
	defer func() { <-parsing }()
	read := media.JSONLines
	if a.form == catalog.BodyCSV {
		read = media.CSV
	}
	value, _ = read(a.Body, lineBounds)
	return value
}

func mediaType(a *Answer) string {
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	return kind
}

// redirectTarget says where a redirect leads, without its query, which may hold a secret; empty where the answer does
// not say.
func redirectTarget(a *Answer) string {
	target, err := url.Parse(a.Header.Get("Location"))
	if err != nil || target.Host == "" && target.Path == "" {
		return ""
	}
	target.User, target.RawQuery, target.Fragment = nil, "", ""
	return "to " + clean(target.String(), 300)
}

// isText tells a body that can be shown as it is. What is neither a text by its type nor UTF-8 are bytes.
func isText(a *Answer) bool {
	return strings.HasPrefix(mediaType(a), "text/") || utf8.Valid(a.Body)
}

// isXML does not count the page of a gateway.
func isXML(kind string) bool {
	return kind == "text/xml" || kind == "application/xml" || strings.HasSuffix(kind, "+xml") &&
		kind != "application/xhtml+xml"
}

// listsOf are the fields that an action reads as arrays, in its own answer or in those of what it asks.
func listsOf(act *catalog.Action) (lists []string) {
	if act == nil || act.Call == nil {
		return nil
	}
	if rows := act.Call.Answer.Rows; rows != nil {
		lists = append(lists, rows.At)
	}
	if act.Call.Lookup != nil {
		lists = append(lists, act.Call.Lookup.Items)
	}
	if act.Call.Result != nil && act.Call.Result.Rows != nil {
		lists = append(lists, act.Call.Result.Rows.At)
	}
	return lists
}
