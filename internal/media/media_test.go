package media_test

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"flowlane/internal/media"
)

var bounds = media.Bounds{Depth: 64, Parts: 1000}

// TestDocument_ReadsBack: what is written of a value and read again is the same value.
func TestDocument_ReadsBack(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		`{"a":""}`, `{"a":{"@x":"1 \" < > & \t"}}`,
		`{"ns:a":{"@xmlns:ns":"urn:x","b":["1","","3"],"ns:c":{"d":"é ß"},"#text":"x]]>y"}}`,
		`{"a":{"b":{"c":"two\nlines"},"e.f-g_1":"\u0085 end\u0085"}}`,
	} {
		text, err := media.AppendDocument(nil, gjson.Parse(value))
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if err := xml.Unmarshal(text, new(struct{})); err != nil {
			t.Errorf("%s is not well formed: %v", text, err)
		}
		back, ok := media.XML(text, media.Reading{Bounds: bounds})
		if !ok || flat(string(back)) != flat(value) {
			t.Errorf("%s\nbecomes %s\nand then %s", value, text, back)
		}
	}
	text, err := media.AppendDocument(nil, gjson.Parse(`{"a":{"n":[1.50,true,null],"x":null,"@y":null},"none":null}`))
	if want := `<?xml version="1.0" encoding="UTF-8"?><a><n>1.50</n><n>true</n></a>`; err != nil ||
		string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// flat is a value with its escapes resolved.
func flat(text string) string {
	var b strings.Builder
	var walk func(name string, v gjson.Result)
	walk = func(name string, v gjson.Result) {
		if v.Type == gjson.JSON {
			b.WriteString(name + v.Raw[:1])
			v.ForEach(func(key, v gjson.Result) bool { walk(key.String()+":", v); return true })
			b.WriteString("}")
			return
		}
		b.WriteString(name + v.Type.String() + v.String() + ";")
	}
	walk("", gjson.Parse(text))
	return b.String()
}

func TestDocument_Refuses(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		`"a"`, `[]`, `{}`, `{"a":1,"b":2}`, `{"a":[1,2]}`, `{"@a":1}`, `{"#text":"x"}`, `{"a":{"b c":1}}`,
		`{"a":{"1b":1}}`, `{"a":{"@":1}}`, `{"a:b:c":1}`,
		`{"a":{"@x":{}}}`, `{"a":{"#text":[]}}`, `{"a":{"b":[[1]]}}`, `{"a":"\u0001"}`, `{"a":"\uffff"}`, `{":a":1}`,
		strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
	} {
		if text, err := media.AppendDocument(nil, gjson.Parse(value)); !errors.Is(err, media.ErrNoXML) {
			t.Errorf("%s becomes %s, error %v", value, text, err)
		}
	}
}

func TestXML_Local(t *testing.T) {
	t.Parallel()
	r := media.Reading{Bounds: bounds, Local: true, Lists: []string{"row", "deep.row"}, Skip: 2}
	text := `<s:E xmlns:s="u" xmlns="v"><s:B><row s:id="1">a</row><deep><x:row xmlns:x="w"/></deep><other>b</other></s:B></s:E>`
	got, ok := media.XML([]byte(text), r)
	if want := `{"E":{"B":{"row":[{"@id":"1","#text":"a"}],"deep":{"row":[""]},"other":"b"}}}`; !ok ||
		string(got) != want {
		t.Errorf("%s becomes %s", text, got)
	}
	for _, hostile := range []string{
		`<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>`, `<a>&x;</a>`, `<!DOCTYPE a SYSTEM "http://a.example/a.dtd"><a/>`,
		`<a:b></c:b>`,
		strings.Repeat("<a>", 65) + strings.Repeat("</a>", 65), "<a>" + strings.Repeat("<b/>", 1000) + "</a>",
		"<a/><b/>", "",
	} {
		if got, ok := media.XML([]byte(hostile), r); ok {
			t.Errorf("%.60s becomes %.60s", hostile, got)
		}
	}
}
