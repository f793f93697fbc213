package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"flowlane/internal/media"
	"flowlane/internal/platform/catalog"
)

// contentTypes are what bodies are sent as by their form; that of a multipart body names its boundary.
var contentTypes = map[string]string{
	catalog.BodyJSON:  "application/json",
	catalog.BodyForm:  "application/x-www-form-urlencoded",
	catalog.BodyXML:   "application/xml; charset=utf-8",
	catalog.BodyText:  "text/plain; charset=utf-8",
	catalog.BodyBytes: "application/octet-stream",
	catalog.BodyCSV:   "text/csv; charset=utf-8",
	catalog.BodyJSONL: "application/x-ndjson",
}

// body writes the body of a call in its form; null is none.
func (p *preparer) body(r *Request, rows []byte) error {
	form, err := p.bodyForm()
	if err != nil {
		return err
	}
	raw, err := p.render("body", p.call.Compiled.Body)
	if err != nil {
		return err
	}
	if raw, err = p.keyed(raw); err != nil {
		return err
	}
	r.BodyForm = form
	if rows != nil && (form == catalog.BodyCSV || form == catalog.BodyJSONL) {
		r.Header.Set("Content-Type", contentTypes[form])
		return p.lines(r, rows)
	}
	if rows != nil {
		if r.Body, err = p.withRecords(raw, rows); err != nil {
			return err
		}
	} else if raw != nil && string(raw) != "null" {
		r.Body = [][]byte{raw}
	}
	if r.Body == nil && form != catalog.BodyForm {
		return nil
	}
	if form == catalog.BodySOAP {
		return p.envelope(r, gjson.ParseBytes(bytes.Join(r.Body, nil)))
	}
	r.Header.Set("Content-Type", contentTypes[form])
	if form == catalog.BodyJSON {
		return nil
	}
	text, err := writeBody(r, form, gjson.ParseBytes(bytes.Join(r.Body, nil)))
	switch {
	case errors.Is(err, ErrParams):
		return err
	case err != nil:
		return fmt.Errorf("%w: body: %w", ErrParams, err)
	}
	r.Body = [][]byte{text}
	return nil
}

// lines writes a line for each record.
func (p *preparer) lines(r *Request, rows []byte) (err error) {
	text := make([]byte, 0, len(rows))
	var columns []string
	if r.BodyForm == catalog.BodyCSV {
		if columns, err = columnsOf(p.call.Records, parse(rows)); err != nil {
			return err
		}
		text = media.AppendCells(text, columns)
	}
	parse(rows).ForEach(func(_, row gjson.Result) bool {
		if r.BodyForm == catalog.BodyCSV {
			text, err = media.AppendRow(text, columns, p.call.Records.Null, row)
		} else {
			text = media.AppendLine(text, row)
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrParams, err)
	}
	r.Body = [][]byte{text}
	return nil
}

// columnsOf are the columns of a table: those of the catalog, else the fields of the records.
func columnsOf(records *catalog.Records, rows gjson.Result) (columns []string, err error) {
	if len(records.Columns) > 0 {
		return records.Columns, nil
	}
	rows.ForEach(func(_, row gjson.Result) bool {
		var more bool
		if columns, more = media.Columns(columns, row); !more {
			err = fmt.Errorf("%w: the records have more than %d fields, which a table cannot have", ErrParams,
				media.MostColumns)
		}
		return err == nil
	})
	return columns, err
}

// keyed puts the key into the field of the body that the catalog names.
func (p *preparer) keyed(raw json.RawMessage) (json.RawMessage, error) {
	field := p.call.Idempotency.Body
	if field == "" || p.key == "" {
		return raw, nil
	}
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	out, err := sjson.SetBytes(raw, field, p.key)
	if err != nil || !gjson.ParseBytes(raw).IsObject() {
		return nil, fmt.Errorf("%w: body must be an object, for the key in %s", ErrParams, field)
	}
	return out, nil
}

func (p *preparer) bodyForm() (string, error) {
	if p.call.Compiled.BodyForm == nil {
		return p.call.BodyForm, nil
	}
	form, err := p.text("body_form", p.call.Compiled.BodyForm)
	if err == nil && !slices.Contains(catalog.BodyForms, form) {
		err = fmt.Errorf("%w: body_form must be one of %v", ErrParams, catalog.BodyForms)
	}
	return form, err
}

// writeBody writes a body that is no JSON.
func writeBody(r *Request, form string, value gjson.Result) ([]byte, error) {
	switch form {
	case catalog.BodyForm:
		return appendForm(nil, value)
	case catalog.BodyMultipart:
		text, contentType, err := multipartBody(value)
		r.Header.Set("Content-Type", contentType)
		return text, err
	case catalog.BodyXML:
		return media.AppendDocument(nil, value)
	}
	text, ok := scalar(value)
	if !ok {
		return nil, errors.New("must be a string")
	}
	if form == catalog.BodyText {
		return []byte(text), nil
	}
	plain, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("must be base64")
	}
	return plain, nil
}

// withRecords puts the records of a bulk call into its envelope, without copying them.
func (p *preparer) withRecords(raw json.RawMessage, rows []byte) ([][]byte, error) {
	if p.call.Records.At == "" {
		return [][]byte{rows}, nil
	}
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '{' {
		return nil, fmt.Errorf("%w: the envelope of the records must be an object", ErrParams)
	}
	names := strings.Split(p.call.Records.At, ".")
	// at is the object around the records, as far as the envelope has it, end where it ends.
	at, end := gjson.ParseBytes(raw), len(raw)
	start := 0
	for len(names) > 1 {
		next := fieldOf(at, names[0])
		if next.Type == gjson.Null {
			break
		}
		if !next.IsObject() {
			return nil, fmt.Errorf("%w: the envelope of the records: %q must be an object", ErrParams, names[0])
		}
		start += next.Index
		at, end, names = next, start+len(next.Raw), names[1:]
	}
	head := bytes.Clone(raw[:end-1])
	if len(bytes.TrimSpace(head[start+1:])) > 0 {
		head = append(head, ',')
	}
	for i, name := range names {
		if i > 0 {
			head = append(head, '{')
		}
		head = append(append(head, quote(name)...), ':')
	}
	tail := append(bytes.Repeat([]byte{'}'}, len(names)-1), raw[end-1:]...)
	return [][]byte{head, rows, tail}, nil
}

// fieldOf is a field of an object by its name, whatever that is.
func fieldOf(object gjson.Result, name string) (found gjson.Result) {
	object.ForEach(func(key, v gjson.Result) bool {
		if key.String() == name {
			found = v
			// Index is counted from the text that was parsed first.
			found.Index -= object.Index
			return false
		}
		return true
	})
	return found
}

// FormsRows reports whether the rows of a bulk call get a form in its body that not every row can have.
func FormsRows(act *catalog.Action) bool {
	return slices.Contains([]string{catalog.BodyCSV, catalog.BodyXML, catalog.BodySOAP}, act.Call.BodyForm)
}

// CheckRow says why the row of a bulk call has no form in its body. The error wraps ErrParams.
func CheckRow(act *catalog.Action, row []byte) error {
	records, err := act.Call.Records, error(nil)
	switch act.Call.BodyForm {
	case catalog.BodyCSV:
		columns := records.Columns
		if len(columns) == 0 {
			var more bool
			if columns, more = media.Columns(nil, parse(row)); !more {
				return fmt.Errorf("%w: the record has more than %d fields", ErrParams, media.MostColumns)
			}
		}
		_, err = media.AppendRow(nil, columns, records.Null, parse(row))
	case catalog.BodyXML, catalog.BodySOAP:
		_, err = media.AppendElement(nil, records.At[strings.LastIndexByte(records.At, '.')+1:], gjson.ParseBytes(row))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrParams, err)
	}
	return nil
}
