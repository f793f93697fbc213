package webhook_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"

	"flowlane/internal/expr"
	"flowlane/internal/trigger/webhook"
)

const (
	asJSON = "application/json"
	asForm = "application/x-www-form-urlencoded"
	asXML  = "application/xml"
)

// wrapped is what is not understood.
func wrapped(raw, contentType string) string {
	text, _ := json.Marshal(raw)
	return `{"raw":` + strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text)) +
		`,"content_type":"` + contentType + `"}`
}

func TestPayload(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ name, contentType, body, want string }{
		{"JSON", asJSON, ` {"b":1.00,"a":[12345678901234567890.10,1e400,-0], "c":null}` + "\n",
			`{"b":1.00,"a":[12345678901234567890.10,1e400,-0], "c":null}`},
		{"JSON/OtherCharset", "Application/JSON ; charset=iso-8859-1", `"é"`, `"é"`},
		{"JSON/Suffix", "application/vnd.api+json", `[1]`, `[1]`},
		{"JSON/Mark", asJSON, "\ufeff1.50", `1.50`},
		{"JSON/Malformed", asJSON, `{"a":`, wrapped(`{"a":`, asJSON)},
		{"JSON/Two", asJSON, `1 2`, wrapped(`1 2`, asJSON)},
		{"JSON/Empty", asJSON, ``, wrapped(``, "")},
		{"JSON/NotUTF8", asJSON, "\"\xff\"", wrapped("\"\ufffd\"", asJSON)},
		{"JSON/NUL", asJSON, "\"\x00\"", wrapped("\"\ufffd\"", asJSON)},
		{"JSON/EscapedNUL", asJSON, `["\u0000"]`, wrapped(`["\u0000"]`, asJSON)},
		{"JSON/EscapedBackslash", asJSON, `["\\u0000","\ud83d\ude00\\"]`, `["\\u0000","\ud83d\ude00\\"]`},
		{"JSON/High", asJSON, `["\ud83d"]`, wrapped(`["\ud83d"]`, asJSON)},
		{"JSON/HighHigh", asJSON, `["\uD83d\uD83d"]`, wrapped(`["\uD83d\uD83d"]`, asJSON)},
		{"JSON/Low", asJSON, `["\uDe00"]`, wrapped(`["\uDe00"]`, asJSON)},
		{"JSON/64Deep", asJSON, deep(64), deep(64)},
		{"JSON/65Deep", asJSON, deep(65), wrapped(deep(65), asJSON)},
		{"JSON/NotDeep", asJSON, `["` + deep(100) + `\"` + deep(100) + `"]`, `["` + deep(100) + `\"` + deep(100) +
			`"]`},
		{"Form", asForm, "a=1&b=x+y%2Bz&a=2&c&=e&&%C3%A9=%e2%82%ac",
			`{"a":["1","2"],"b":"x y+z","c":"","":"e","é":"€"}`},
		{"Form/Charset", asForm + "; charset=utf-8", "a=b=c;d", `{"a":"b=c;d"}`},
		{"Form/BadEscapes", asForm, "a=100%&b=%zz%4&c=%2", `{"a":"100%","b":"%zz%4","c":"%2"}`},
		{"Form/NotUTF8", asForm, "a=%ff", `{"a":"` + "\ufffd" + `"}`},
		{"Form/NUL", asForm, "a=%00", wrapped("a=%00", asForm)},
		{"Form/NULInKey", asForm, "%00=1", wrapped("%00=1", asForm)},
		{"Form/Empty", asForm, "", wrapped(``, "")},
		{"Form/NoFields", asForm, "&", `{}`},
		{"Form/MoreThanAFew", asForm, "a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8&i=9&j=10&a=11&j=12",
			`{"a":["1","11"],"b":"2","c":"3","d":"4","e":"5","f":"6","g":"7","h":"8","i":"9","j":["10","12"]}`},
		{"Text", "text/plain; charset=utf-8", "hé\x00\xffllo", wrapped("hé\ufffd\ufffdllo",
			"text/plain; charset=utf-8")},
		{"NoType", "", `{"a":1}`, wrapped(`{"a":1}`, "")},
		{"LongType", strings.Repeat("x", 300), `1`, wrapped(`1`, strings.Repeat("x", 256))},
		{"NULInComment", asXML, "<a/><!--\x00-->", wrapped("<a/><!--\ufffd-->", asXML)},
		{"NUL", asXML, "<a>\x00</a>", wrapped("<a>\ufffd</a>", asXML)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wantPayload(t, c.contentType, "", c.body, c.want)
		})
	}
}

func wantPayload(t *testing.T, contentType, contentEncoding, body, want string) {
	t.Helper()
	if got := webhook.Payload(contentType, contentEncoding, []byte(body)); string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestPayload_XML(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("<a>", n) + strings.Repeat("</a>", n) }
	for _, c := range []struct{ name, body, want string }{
		{"Order", `<?xml version="1.0" encoding="UTF-8"?><!-- c --><order id="7" n=''><item>a</item><to> <name>x</name> </to><item>b</item></order>` + "\n",
			`{"order":{"@id":"7","@n":"","item":["a","b"],"to":{"name":"x"}}}`},
		{"Document", `<order id="7"><item>a</item><item n="2">b</item><to/></order>`,
			`{"order":{"@id":"7","item":["a",{"@n":"2","#text":"b"}],"to":""}}`},
		{"Leaf", `<a> x &lt;&#233;<![CDATA[<&]]> </a>`, `{"a":"x <é<&"}`},
		{"Mixed", `<a>one<b/>two<?p x?><!-- c --> three</a>`, `{"a":{"b":"","#text":"onetwo three"}}`},
		{"AttributeAndText", `<a b="&amp;">x</a>`, `{"a":{"@b":"&","#text":"x"}}`},
		{"Namespaces", `<s:a xmlns:s="urn:x" s:b="1"><s:b/><b/></s:a>`,
			`{"s:a":{"@xmlns:s":"urn:x","@s:b":"1","s:b":"","b":""}}`},
		{"Mark", "\ufeff<a/>", `{"a":""}`},
		{"Latin1", "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>", `{"a":"é"}`},
		{"ASCII", "<?xml version='1.0' encoding='US-ASCII'?><a>e</a>", `{"a":"e"}`},
		{"64Deep", deep(64), strings.Repeat(`{"a":`, 64) + `""` + strings.Repeat(`}`, 64)},
		{"65Deep", deep(65), ""},
		{"65DeepWithAnArray", "<b>" + deep(63) + deep(63) + "</b>", ""},
		{"Empty", "", wrapped("", "")},
		{"Space", " ", ""},
		{"Text", "x", ""},
		{"TextAfter", "<a/>x", ""},
		{"TextBefore", "x<a/>", ""},
		{"TwoRoots", "<a/><b/>", ""},
		{"TwoRootsOfOneName", "<a/><a/>", ""},
		{"Open", "<a>", ""},
		{"Crossed", "<a><b></a></b>", ""},
		{"EndAlone", "</a>", ""},
		{"TwoAttributes", `<a b="1" b="2"/>`, ""},
		{"UnknownEntity", `<a>&nbsp;</a>`, ""},
		{"UnknownEncoding", `<?xml version="1.0" encoding="utf-7"?><a/>`, ""},
		{"SecondDeclaration", "<a><?xml version='1.0' encoding='ISO-8859-1'?></a>", ""},
		{"CharacterNUL", `<a>&#0;</a>`, ""},
		{"HalfOfAPair", `<a>&#xD800;</a>`, ""},
		{"HalfOfAPairInDigits", `<a>x&#0057343;</a>`, ""},
		{"HalfOfAPairInAnAttribute", `<a b="&#x00dfff;"/>`, ""},
		{"HalfOfAPairInLatin1", "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9\xe9<b/>&#xdabc;</a>",
			wrapped("<?xml version='1.0' encoding='ISO-8859-1'?><a>\ufffd\ufffd<b/>&#xdabc;</a>", asXML)},
		{"NoHalves", "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9&#xE000;&#xD7FF;&#x1F600;&amp;#xD800;</a>",
			"{\"a\":\"é\ue000\uD7FF😀&#xD800;\"}"},
		{"DOCTYPE", `<!DOCTYPE a><a/>`, ""},
		{"Internal", `<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>`, ""},
		{"External", `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>`, ""},
		{"Parameter", `<!DOCTYPE a [<!ENTITY % x SYSTEM "http://localhost:1/"> %x;]><a/>`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.want == "" {
				c.want = wrapped(c.body, asXML)
			}
			for _, contentType := range []string{asXML, "text/xml", "application/soap+xml;charset=utf-8"} {
				wantPayload(t, contentType, "", c.body, strings.Replace(c.want, `"content_type":"`+asXML,
					`"content_type":"`+contentType, 1))
			}
		})
	}
	wantPayload(t, asXML, "", "<a>\xe9</a>", wrapped("<a>\ufffd</a>", asXML))
}

func packed(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPayload_Encoding(t *testing.T) {
	t.Parallel()
	body := packed(t, []byte(`{"a":1}`))
	for _, encoding := range []string{"gzip", " X-GZIP"} {
		wantPayload(t, asJSON, encoding, body, `{"a":1}`)
	}
	wantPayload(t, asJSON, "identity", `{"a":1}`, `{"a":1}`)
	wantPayload(t, asJSON, "br", `{"a":1}`, wrapped(`{"a":1}`, asJSON))
	wantPayload(t, asJSON, "gzip", `{"a":1}`, wrapped(`{"a":1}`, asJSON))
	wantPayload(t, asJSON, "gzip", packed(t, []byte("{")), wrapped("{", asJSON))
	bomb := packed(t, bytes.Repeat([]byte(" "), webhook.MaxBody+1))
	for name, body := range map[string]string{"no header": packed(t, []byte(`{"a":1}`)), "cut": body[:len(body)-9],
		"bomb": bomb} {
		encoding := "gzip"
		if name == "no header" {
			encoding = ""
		}
		var got struct {
			Raw         string `json:"raw"`
			ContentType string `json:"content_type"`
		}
		if err := json.Unmarshal(webhook.Payload(asJSON, encoding, []byte(body)), &got); err != nil ||
			got.ContentType != asJSON || !strings.HasPrefix(got.Raw, "\x1f\ufffd\b") {
			t.Errorf("%s: %.20q, %v", name, got.Raw, err)
		}
	}
}

// TestPayload_Template: templates reach what the names of XML make awkward.
func TestPayload_Template(t *testing.T) {
	t.Parallel()
	template, bad := expr.Compile(json.RawMessage(
		`{"id":"{{ payload.order['@id'] }}","to":"{{ payload.order['s:to'].item[1] }}"}`), expr.Scope{Payload: true})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	payload := webhook.Payload(asXML, "", []byte(`<order id="7"><s:to><item>a</item><item>b</item></s:to></order>`))
	text, err := template.Append(nil, &expr.Env{Payload: json.RawMessage(payload)})
	if err != nil || string(text) != `{"id":"7","to":"b"}` {
		t.Errorf("%s, %v", text, err)
	}
}
