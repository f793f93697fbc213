// Package webhooktest is bodies that senders post with bad intentions, or by mistake, for the tests of whoever reads
// them.
package webhooktest

import (
	"slices"
	"strconv"
	"strings"

	"flowlane/internal/trigger/webhook"
)

const (
	asJSON = "application/json"
	asForm = "application/x-www-form-urlencoded"
	asXML  = "application/xml"
)

// fill repeats a text up to the largest body.
func fill(text string) string { return strings.Repeat(text, webhook.MaxBody/len(text)) }

// between fills what lies between two texts.
func between(before, text, after string) string {
	return before + strings.Repeat(text, (webhook.MaxBody-len(before)-len(after))/len(text)) + after
}

// distinct fills a body with texts that all have another name in them.
func distinct(before, left, right, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < webhook.MaxBody-len(left)-len(right)-len(after)-4; i++ {
		b.WriteString(left + strconv.FormatInt(int64(i), 36) + right)
	}
	return b.String() + after
}

// laughs is the billion laughs: entities of entities.
func laughs() string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">`)
	for i := 1; i < 12; i++ {
		n := strconv.Itoa(i - 1)
		b.WriteString(`<!ENTITY l` + strconv.Itoa(i) + ` "` + strings.Repeat("&l"+n+";", 10) + `">`)
	}
	return b.String() + `]><x>&l11;</x>`
}

// Body is what somebody posts.
type Body struct {
	Name, ContentType, Text string
	// Understood: its payload is more than the wrapped text, because it is within the bounds, however large it is.
	Understood bool
}

// Hostile returns bodies of all kinds, made to take much more memory or time than their size. All but the one named
// OneMore are no larger than webhook.MaxBody.
func Hostile() []Body {
	return slices.Concat(hostileJSON(), hostileForms(), hostileXML(), []Body{
		{"Text/NotUTF8", "text/plain; charset=utf-16", fill("\xff"), false},
		{"Text/Control", "text/plain", fill("\x01"), false},
		{"Text/NUL", "application/octet-stream", fill("\x00"), false},
		{"Empty", "", "", false},
		{"EmptyXML", asXML, "", false},
		{"OneMore", asJSON, between(`"`, "a", `"`) + " ", false},
	})
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("&" + strconv.FormatInt(int64(i), 36) + "=x")
	}
	return b.String()[1:]
}

func manyAttributes(n int) string {
	var b strings.Builder
	b.WriteString("<a")
	for i := range n {
		b.WriteString(" b" + strconv.FormatInt(int64(i), 36) + "=''")
	}
	return b.String() + "/>"
}

func distinctElements(n int) string {
	var b strings.Builder
	b.WriteString("<a>")
	for i := range n {
		b.WriteString("<b" + strconv.FormatInt(int64(i), 36) + " c='1'/>")
	}
	return b.String() + "</a>"
}

func hostileJSON() []Body {
	return []Body{
		{"JSON/200000Deep", asJSON, deep("[", "]"), false},
		{"JSON/200000DeepObjects", asJSON, strings.Repeat(`{"":`, 200_000), false},
		{"JSON/200000DeepUnclosed", asJSON, strings.Repeat("[", 200_000), false},
		{"JSON/ManyValues", asJSON, between("[0", ",0", "]"), true},
		{"JSON/ManyKeys", asJSON, distinct("{", `"`, `":0,`, `"":0}`), true},
		{"JSON/OneString", asJSON, between(`"`, "a", `"`), true},
		{"JSON/OneNumber", asJSON, fill("9"), true},
		{"JSON/ManyEscapes", asJSON, between(`"`, `\u00e9`, `"`), true},
		{"JSON/UTF16", asJSON, fill("[\x00]\x00"), false},
		{"JSON/NUL", asJSON, fill("\x00"), false},
		{"JSON/Spaces", asJSON, between("", " ", "1"), true},
		{"JSON/GzipWithoutTheHeader", asJSON, string(append([]byte("\x1f\x8b\x08\x00"), fill("\xff\x01\x80")...)),
			false},
	}
}

func hostileForms() []Body {
	return []Body{
		{"Form/ManyKeys", asForm, distinct("", "", "&", ""), false},
		{"Form/ManyShortKeys", asForm, fill("a&"), false},
		{"Form/OneKeyManyValues", asForm, strings.Repeat("a=12345678901234567&", 50_000), true},
		{"Form/KeysUpToTheBound", asForm, manyKeys(50_000), true},
		{"Form/OneKeyMore", asForm, manyKeys(50_001), false},
		{"Form/Separators", asForm, fill("&"), true},
		{"Form/OneKey", asForm, fill("a"), true},
		{"Form/Escapes", asForm, fill("%e2%82%ac"), true},
		{"Form/BadEscapes", asForm, fill("%"), true},
		{"Form/Control", asForm, fill("\x01"), true},
		{"Form/NotUTF8", asForm, fill("\xff"), true},
	}
}

func hostileXML() []Body {
	return []Body{
		{"XML/Laughs", asXML, laughs(), false},
		{"XML/QuadraticBlowup", asXML, `<!DOCTYPE x [<!ENTITY a "` + strings.Repeat("a", 50_000) + `">]><x>` +
			strings.Repeat("&a;", 100_000) + `</x>`, false},
		{"XML/External", asXML, `<!DOCTYPE x [<!ENTITY f SYSTEM "file:///dev/zero">]><x>&f;</x>`, false},
		{"XML/200000Deep", asXML, deep("<a>", ""), false},
		{"XML/OneElementMore", asXML, "<a>" + strings.Repeat("<b></b>", 50_000) + "</a>", false},
		{"XML/OneAttributeMore", asXML, manyAttributes(50_000), false},
		{"XML/ManyElements", asXML, between("<a>", "<b/>", "</a>"), false},
		{"XML/ElementsUpToTheBound", asXML, "<a>" + strings.Repeat("<b></b>", 49_999) + "</a>", true},
		{"XML/ElementsWithAttributes", asXML, "<a>" + strings.Repeat("<b c=''/>", 24_999) + "</a>", true},
		{"XML/DistinctElements", asXML, distinctElements(24_999), true},
		{"XML/64DeepTwigs", asXML, "<a>" + strings.Repeat(strings.Repeat("<b>", 62)+strings.Repeat("</b>", 62), 793) +
			"</a>", true},
		{"XML/ManyAttributes", asXML, distinct("<a ", "b", "='' ", "/>"), false},
		{"XML/AttributesUpToTheBound", asXML, manyAttributes(49_999), true},
		{"XML/OneText", asXML, between("<a>", "x", "</a>"), true},
		{"XML/ManyTexts", asXML, between("<a>", "x<!---->", "</a>"), true},
		{"XML/ManyEntities", asXML, between("<a>", "&#1114109;&lt;", "</a>"), true},
		{"XML/OneName", asXML, between("<", "x", "/>"), true},
		{"XML/OneComment", asXML, between("<a/><!--", "x", "-->"), true},
		{"XML/OpenComment", asXML, between("<a/><!--", "x", ""), false},
		{"XML/Directives", asXML, fill("<!x>"), false},
		{"XML/OneDirective", asXML, fill("<!x <"), false},
		{"XML/Instructions", asXML, between("", "<?x?>", "<a/>"), true},
		{"XML/OpenCDATA", asXML, between("<a><![CDATA[", "x", ""), false},
		{"XML/UTF16", asXML, "\xff\xfe" + fill("<\x00a\x00"), false},
		{"XML/WrongCharset", asXML, between("<?xml version='1.0' encoding='windows-1252'?><a>", "\x81\xe9", "</a>"),
			true},
	}
}

// deep begins and ends something 200,000 times.
func deep(open, end string) string {
	return strings.Repeat(open, 200_000) + strings.Repeat(end, 200_000)
}
