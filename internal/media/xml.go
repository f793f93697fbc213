package media

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"flowlane/internal/jsonraw"

	"golang.org/x/text/encoding/charmap"
)

// How XML becomes an object. The document is an object with one field, its root element. An element without attributes
// and without elements in it is the string of its text. Every other element is an object: "@name" for each attribute,
// then a field for each name of the elements in it, which is an array where the name repeats, and "#text" for its text,
// if it has any. Names stand as they are written, with their prefixes. Text is all text directly in the element, CDATA
// included, without white space at both ends. Comments and processing instructions are left out.

// Bounds are how much of a body is understood.
type Bounds struct {
	// Depth is how deep objects and arrays may lie in one another, Parts how many fields a form, or elements and
	// attributes an XML document, may have.
	Depth, Parts int
	// Size is how many bytes of JSON a table of CSV may come to; 0 for no such bound.
	Size int
}

// Reading says how an XML document is read.
type Reading struct {
	Bounds
	// Local: names stand without their prefixes, which the sender chooses, and declarations of namespaces are left out.
	Local bool
	// Lists are elements that are arrays even where there is one: the names on the way to each, with dots between them,
	// without the first Skip.
	Lists []string
	Skip  int
}

// XML returns an XML document as an object. It refuses what is not well formed, and every DOCTYPE: without one there
// are no entities but the five of XML itself, so nothing is expanded and nothing fetched.
func XML(body []byte, r Reading) (payload []byte, ok bool) {
	w := xmlWalker{Reading: r, decoder: xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, ByteOrderMark)))}
	w.decoder.CharsetReader = charset
	w.open = []*openElement{{}}
	if halves(body) || w.walk() != nil {
		return nil, false
	}
	payload = w.open[0].appendTo(make([]byte, 0, 2*len(body)+2))
	return payload, jsonraw.TooDeep(payload, r.Depth) < 0 // arrays are levels, too
}

var numbered = regexp.MustCompile(`&#(?:x0*([0-9A-Fa-f]{4})|0*([0-9]{5}));`)

// halves tells whether a document refers to half of a surrogate pair, which is no character: the decoder would take it
// for U+FFFD. One that is quoted in CDATA counts, too: nothing is lost in a raw text.
func halves(body []byte) bool {
	for _, m := range numbered.FindAllSubmatch(body, -1) {
		digits, base := m[1], 16
		if digits == nil {
			digits, base = m[2], 10
		}
		if n, err := strconv.ParseUint(string(digits), base, 32); err == nil && n >= 0xD800 && n <= 0xDFFF {
			return true
		}
	}
	return false
}

// xmlWalker reads a document into objects.
type xmlWalker struct {
	Reading

	decoder *xml.Decoder
	// open are the elements that have begun and not ended; the first one stands for the document.
	open  []*openElement
	parts int
}

type openElement struct {
	object

	// written is the name in the document, name what is made of it.
	written, name string
	text          []byte
}

var (
	errMalformed = errors.New("not well formed")
	errBounds    = errors.New("beyond the bounds")
)

// charset reads documents in the two other encodings that are common; the rest is refused.
func charset(label string, input io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "us-ascii", "ascii":
		return input, nil
	case "iso-8859-1", "latin1", "windows-1252":
		return charmap.Windows1252.NewDecoder().Reader(input), nil
	}
	return nil, fmt.Errorf("the encoding %q is not known", label)
}

func (w *xmlWalker) walk() error {
	for begun := false; ; {
		token, err := w.decoder.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			err = w.start(t)
		case xml.EndElement:
			err = w.end(written(t.Name))
		case xml.CharData:
			err = w.chars(t)
		case xml.ProcInst:
			// Elsewhere than at the beginning a declaration could change the encoding halfway.
			if strings.EqualFold(t.Target, "xml") && begun {
				err = errMalformed
			}
		case xml.Directive:
			err = errMalformed
		}
		begun = true
		if err != nil {
			return err
		}
	}
	if len(w.open) != 1 || len(w.open[0].fields) != 1 {
		return errMalformed
	}
	return nil
}

// written is a name as it stands in the document.
func written(name xml.Name) string {
	if name.Space == "" {
		return name.Local
	}
	return name.Space + ":" + name.Local
}

func (w *xmlWalker) named(name xml.Name) string {
	if w.Local {
		return name.Local
	}
	return written(name)
}

func (w *xmlWalker) start(t xml.StartElement) error {
	if len(w.open) == 1 && len(w.open[0].fields) > 0 {
		return errMalformed // a second root
	}
	w.parts += 1 + len(t.Attr)
	if w.parts > w.Parts || len(w.open) > w.Depth {
		return errBounds
	}
	e := &openElement{written: written(t.Name), name: w.named(t.Name)}
	for _, a := range t.Attr {
		if w.Local && (a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns") {
			continue
		}
		key := "@" + w.named(a.Name)
		if e.find(key) >= 0 {
			return errMalformed
		}
		e.add(key, value{text: a.Value})
	}
	w.open = append(w.open, e)
	return nil
}

func (w *xmlWalker) chars(text xml.CharData) error {
	e := w.open[len(w.open)-1]
	if len(w.open) == 1 {
		if len(trimmed(text)) > 0 {
			return errMalformed // text outside of the root
		}
		return nil
	}
	e.text = append(e.text, text...)
	return nil
}

func trimmed(text []byte) []byte { return bytes.Trim(text, " \t\r\n") }

// end makes the last open element a value of the one around it.
func (w *xmlWalker) end(name string) error {
	last := len(w.open) - 1
	e := w.open[last]
	if last == 0 || e.written != name {
		return errMalformed
	}
	w.open = w.open[:last]
	v := value{text: string(trimmed(e.text))}
	if len(e.fields) > 0 {
		if v.text != "" {
			e.add("#text", value{text: v.text})
		}
		v = value{object: &object{e.fields, e.index}}
	}
	around := &w.open[last-1].object
	around.add(e.name, v)
	if w.listed(e.name) {
		around.fields[around.find(e.name)].list = true
	}
	return nil
}

// listed reports whether an element of the last open one is an array even where there is one.
func (w *xmlWalker) listed(name string) bool {
	if len(w.Lists) == 0 || len(w.open) <= w.Skip {
		return false
	}
	way := ""
	for _, e := range w.open[1+w.Skip:] {
		way += e.name + "."
	}
	return slices.Contains(w.Lists, way+name)
}
