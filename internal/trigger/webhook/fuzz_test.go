package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/webhooktest"
)

var (
	goodID        = regexp.MustCompile(`\A[!-\-/-~]{1,256}\z`)
	goodTimestamp = regexp.MustCompile(`\A[0-9]{1,12}\z`)
)

// mostSeed is how many bytes of a body are worth changing here and there.
const mostSeed = 1000

// FuzzVerify holds Verify to its rule: well-formed headers, a time within five minutes, and among the listed
// signatures, as text, the right one.
func FuzzVerify(f *testing.F) {
	f.Add(vectorID, vectorTimestamp, vectorSignature, []byte(vectorBody))
	f.Add("a", "1614265630", "v1a,x v1, v1,=", []byte(nil))
	f.Add("a.1", "1614265029", "", []byte("."))
	f.Add("", "-1", "  ", []byte("\x00"))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(vectorSecret, "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		right := "v1," + webhook.Mac(key, id, timestamp, body)
		for _, listed := range []string{signature, right, signature + " " + right, right + " " + signature} {
			seconds, _ := strconv.ParseInt(timestamp, 10, 64)
			off := seconds - vectorTime.Unix()
			want := goodID.MatchString(id) && goodTimestamp.MatchString(timestamp) && off >= -300 && off <= 300 &&
				len(listed) <= 4096 && slices.Contains(strings.Split(listed, " "), right)
			err := webhook.Verify([]string{vectorSecret}, id, timestamp, listed, body, vectorTime)
			if want != (err == nil) || err != nil && err != webhook.ErrSignature { //nolint:errorlint // the very value
				t.Fatalf("%q %q %q: %v", id, timestamp, listed, err)
			}
		}
	})
}

// FuzzPayload: every body of every kind becomes JSON that can be stored, and a payload that is JSON becomes itself.
func FuzzPayload(f *testing.F) {
	for _, c := range webhooktest.Hostile() {
		if len(c.Text) < mostSeed {
			f.Add(c.ContentType, []byte(c.Text))
		}
	}
	f.Add(asJSON, []byte(`{"a":"\ud83d\ude00\u0000","b":[1e5]}`))
	f.Add("text/x\x00+json", []byte("\"\xff\""))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		payload := webhook.Payload(contentType, "", body)
		wantStorable(t, contentType, payload)
		if again := webhook.Payload(asJSON, "", payload); len(payload) <= webhook.MaxBody &&
			!bytes.Equal(again, payload) {
			t.Fatalf("%q becomes %q", payload, again)
		}
	})
}

// FuzzForm holds forms to net/url, where that understands them.
func FuzzForm(f *testing.F) {
	for _, form := range []string{"a=1&b=x+y%2Bz&a=2&c&=e&&%C3%A9=%e2%82%ac", "a=100%&b=%zz%4", "%ff=1&%fe=2&\xff=3",
		"a=%00", "a;b", "==&=="} {
		f.Add([]byte(form))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		payload := webhook.Payload(asForm, "", body)
		wantStorable(t, asForm, payload)
		want, err := url.ParseQuery(string(body))
		if err != nil || isWrapped(payload) {
			return
		}
		texts := map[string][]string{}
		for key, values := range want {
			key = strings.ToValidUTF8(key, "\ufffd")
			for _, text := range values {
				texts[key] = append(texts[key], strings.ToValidUTF8(text, "\ufffd"))
			}
		}
		got := map[string]any{}
		if err := json.Unmarshal(payload, &got); err != nil || len(got) != len(texts) {
			t.Fatalf("%q becomes %s, %v", body, payload, err)
		}
		for key, values := range texts {
			var have []string
			switch v := got[key].(type) {
			case string:
				have = []string{v}
			case []any:
				for _, text := range v {
					have = append(have, text.(string))
				}
			}
			// Keys that were no UTF-8 may have become one, in any order.
			slices.Sort(have)
			slices.Sort(values)
			if !slices.Equal(have, values) {
				t.Fatalf("%q: %q is %q, want %q", body, key, have, values)
			}
		}
	})
}

// FuzzXML: what is understood is well formed by the standard library too, and written as XML again it becomes the same.
func FuzzXML(f *testing.F) {
	for _, document := range []string{
		`<?xml version="1.0" encoding="UTF-8"?><!-- c --><order id="7" n=''><item>a</item><to> <name>x</name> </to><item>b</item></order>`,
		`<a> x &lt;&#233;<![CDATA[<&]]> </a>`, `<s:a xmlns:s="urn:x" s:b="1"><s:b/><b/>` + "one\rtwo" + `</s:a>`,
		`<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>`,
		"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>",
		`<a b="1" b="2"/>`, `<a/><b/>`, `<a>&#xD800;]]&gt;</a>`, strings.Repeat("<a>", 64) + strings.Repeat("</a>", 64),
	} {
		f.Add([]byte(document))
	}
	for _, c := range webhooktest.Hostile() {
		if c.ContentType == asXML && len(c.Text) < mostSeed {
			f.Add([]byte(c.Text))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		payload := webhook.Payload(asXML, "", body)
		wantStorable(t, asXML, payload)
		if isWrapped(payload) {
			return
		}
		if utf8.Valid(body) && !bytes.Contains(body, []byte("<?")) {
			d := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\ufeff"))))
			for err := error(nil); !errors.Is(err, io.EOF); {
				if _, err = d.Token(); err != nil && !errors.Is(err, io.EOF) {
					t.Fatalf("%q is understood as %s: %v", body, payload, err)
				}
			}
		}
		again := writeXML(t, payload)
		if got := webhook.Payload(asXML, "", again); !bytes.Equal(got, payload) {
			t.Fatalf("%q is understood as %s; %q as %s", body, payload, again, got)
		}
	})
}

// writeXML writes a payload as the document that it was made of, elements of one name together.
func writeXML(t *testing.T, payload []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(payload))
	var b bytes.Buffer
	token := func() json.Token {
		tok, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	escape := func(text string) {
		if err := xml.EscapeText(&b, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var inside func(name string)
	// element writes the value that comes next as elements of a name; its begin tag is open until the attributes are
	// over.
	element := func(name string, tok json.Token) {
		b.WriteString("<" + name)
		if text, ok := tok.(string); ok {
			b.WriteString(">")
			escape(text)
		} else {
			inside(name)
		}
		b.WriteString("</" + name + ">")
	}
	inside = func(name string) {
		begun := name == ""
		for d.More() {
			key := token().(string)
			if attribute, ok := strings.CutPrefix(key, "@"); ok {
				b.WriteString(" " + attribute + `="`)
				escape(token().(string))
				b.WriteString(`"`)
				continue
			}
			if !begun {
				b.WriteString(">")
				begun = true
			}
			switch tok := token(); {
			case key == "#text":
				escape(tok.(string))
			case tok == json.Delim('['):
				for d.More() {
					element(key, token())
				}
				token()
			default:
				element(key, tok)
			}
		}
		if !begun {
			b.WriteString(">")
		}
		token()
	}
	token()
	inside("")
	return b.Bytes()
}
