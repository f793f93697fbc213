package provider

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// Where answers that are no success have a code and a message, by the forms that are in use. The first that is there
// counts: what says more about the failure stands before what says less.
var (
	// messageAt: GraphQL, JSON:API, problem details (RFC 9457) and what stands beside them, OAuth, and what platforms
	// write.
	messageAt = []string{
		"errors.0.message", "errors.0.detail", "errors.0.description", "errors.0.title", "errors.0",
		"validation.0.message",
		"error.message", "error.detail", "error.description", "error.reason", "error_description", "error_message",
		"errorMessage", "message", "detail.0.msg", "detail.message", "detail", "description", "msg",
		"fault.faultstring",
		"0.message", "reason", "title", "error",
	}
	codeAt = []string{
		"errors.0.extensions.code", "errors.0.code", "errors.0.errorCode", "errors.0.type",
		"error.code", "error.type", "error.status", "error_code", "errorCode", "code", "type", "category",
		"0.errorCode",
		"0.code", "fault.detail.errorcode", "error",
	}
)

// maxFault is how large an answer may be, in bytes, to be searched through where the catalog names no field.
const maxFault = 64 << 10

// readFault takes code and message out of an answer that is no success: from the fields that the catalog names, else
// from where such answers have them: JSON (of which the beginning is told where no form fits), the faults of SOAP and
// other XML, plain text. The HTML page of a gateway says nothing.
func readFault(spec *catalog.Answer, ans *Answer) (code, message string) {
	value := ans.Value(nil)
	if value == nil {
		return "", ""
	}
	doc := parse(value)
	code, message = named(doc, spec.Code), named(doc, spec.Message)
	if len(value) > maxFault {
		return code, message
	}
	var foundCode, foundMessage string
	switch {
	case ans.fault != nil:
		f := parse(ans.fault)
		foundCode = cmp.Or(scalarText(f.Get("name")), scalarText(f.Get("code")))
		foundMessage = cmp.Or(scalarText(f.Get("string")), scalarText(f.Get("detail.message")))
	case isXML(mediaType(ans)):
		foundCode, foundMessage = xmlFault("", doc)
	default:
		found := faultOf(doc)
		if foundMessage = found.message(); message != "" {
			message = clean(found.where(spec.Message)+message, maxText)
		}
		foundCode = found.code(cmp.Or(message, foundMessage))
	}
	code, message = cmp.Or(code, foundCode), cmp.Or(message, foundMessage)
	if code == "" && message == "" && strings.ContainsRune(doc.Raw, '"') { // else it says nothing
		message = clean(doc.Raw, maxSaid)
	}
	return code, message
}

// fault is an answer that is no success, with what it has under names that are looked for. They are found in one pass:
// an answer may have thousands of others.
type fault struct {
	doc   gjson.Result
	named map[string]gjson.Result
}

func faultOf(doc gjson.Result) fault {
	f := fault{doc, map[string]gjson.Result{}}
	if doc.IsArray() {
		f.named["0"] = doc.Get("0")
		return f
	}
	doc.ForEach(func(key, value gjson.Result) bool {
		if _, known := f.named[key.Str]; !known && wantedNames[key.Str] {
			f.named[key.Str] = value
		}
		return true
	})
	return f
}

// wantedNames are the first names of all paths that are looked for.
var wantedNames = func() map[string]bool {
	out := map[string]bool{}
	for _, at := range slices.Concat(messageAt, codeAt) {
		name, _, _ := strings.Cut(at, ".")
		out[name] = true
	}
	return out
}()

func (f fault) at(path string) gjson.Result {
	name, rest, deeper := strings.Cut(path, ".")
	if v := f.named[name]; v.Exists() && deeper {
		return v.Get(rest)
	}
	return f.named[name]
}

// message finds the message of an error in JSON of any form.
func (f fault) message() string {
	for _, at := range messageAt {
		if v := f.at(at); v.Type == gjson.String && strings.TrimSpace(v.Str) != "" {
			return clean(f.where(at)+v.Str, maxText)
		}
	}
	for _, v := range []gjson.Result{f.at("errors"), f.at("error"), f.doc} {
		if message := byField(v); message != "" {
			return message
		}
	}
	if f.doc.Type == gjson.String {
		return clean(f.doc.Str, maxText)
	}
	return ""
}

// fieldAt is beside a message what part of the request it speaks of, by where the message stands.
var fieldAt = map[string][]string{
	"errors": {"errors.0.field", "errors.0.source.pointer", "errors.0.parameter"},
	"error":  {"error.param", "error.field"},
}

// where is the beginning of a message that says what part of the request it speaks of; empty where nothing does.
func (f fault) where(at string) string {
	parent, _, _ := strings.Cut(at, ".")
	for _, field := range fieldAt[parent] {
		if name := scalarText(f.at(field)); name != "" {
			return name + ": "
		}
	}
	return ""
}

// byField is the first message of an object that has nothing but messages by field: {"email": ["is taken"]}.
func byField(v gjson.Result) (message string) {
	if !v.IsObject() {
		return ""
	}
	only := true
	v.ForEach(func(field, said gjson.Result) bool {
		if only = said.IsArray(); only {
			said = said.Get("0")
			if said.IsObject() {
				said = said.Get("message")
			}
			only = said.Type == gjson.String
		}
		if only && message == "" {
			message = clean(field.String()+": "+said.Str, maxText)
		}
		return only
	})
	if !only {
		return ""
	}
	return message
}

// code finds the code of an error in JSON of any form, rather a word than a number. What is its message is not its
// code.
func (f fault) code(message string) string {
	for _, kind := range []gjson.Type{gjson.String, gjson.Number} {
		for _, at := range codeAt {
			v := f.at(at)
			if v.Type != kind {
				continue
			}
			if code := scalarText(v); code != "" && code != message && code != "about:blank" {
				return code
			}
		}
	}
	return ""
}

// xmlWords are the elements of errors in XML: SOAP 1.1 and 1.2, object storage, and others; in small letters.
var xmlWords = map[string]struct{ code, message bool }{
	"faultcode": {code: true}, "faultstring": {message: true}, "value": {code: true}, "text": {message: true},
	"code": {code: true}, "errorcode": {code: true}, "message": {message: true}, "errormessage": {message: true},
	"detail": {message: true}, "description": {message: true},
}

// xmlFault finds the first code and the first message in XML that was read.
func xmlFault(element string, doc gjson.Result) (code, message string) {
	doc.ForEach(func(key, v gjson.Result) bool {
		name := key.String()
		if doc.IsArray() || name == "#text" {
			name = element
		}
		if v.Type == gjson.JSON {
			innerCode, innerMessage := xmlFault(name, v)
			code, message = cmp.Or(code, innerCode), cmp.Or(message, innerMessage)
		} else if said, word := clean(v.String(), maxText), xmlWords[strings.ToLower(name)]; word.code {
			code = cmp.Or(code, said)
		} else if word.message {
			message = cmp.Or(message, said)
		}
		return code == "" || message == ""
	})
	return code, message
}
