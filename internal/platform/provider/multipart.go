package provider

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"

	"github.com/tidwall/gjson"
)

// multipartBody writes an object as multipart/form-data, in its order: a plain value is a field, an array one for each
// item, an object a part of its own: {"filename", "content_type", and its content as "text" or "base64"}. Nulls are
// left out. The boundary follows from the content, so that the same call is the same bytes whenever it is made.
func multipartBody(value gjson.Result) (body []byte, contentType string, err error) {
	if !value.IsObject() {
		return nil, "", errors.New("must be an object of fields and files")
	}
	sum := sha256.Sum256([]byte(value.Raw))
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary("flowlane-" + hex.EncodeToString(sum[:16])); err != nil {
		return nil, "", fmt.Errorf("boundary: %w", err)
	}
	add := func(name string, v gjson.Result) bool {
		if err = writePart(w, name, v); err != nil {
			err = fmt.Errorf("%q: %w", name, err)
		}
		return err == nil
	}
	value.ForEach(func(name, v gjson.Result) bool {
		if !v.IsArray() {
			return add(name.String(), v)
		}
		v.ForEach(func(_, item gjson.Result) bool { return add(name.String(), item) })
		return err == nil
	})
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), w.FormDataContentType(), err
}

func writePart(w *multipart.Writer, name string, v gjson.Result) error {
	text, plain := scalar(v)
	switch {
	case v.Type == gjson.Null:
		return nil
	case plain:
		return w.WriteField(name, text) //nolint:wrapcheck // the caller names the field
	case !v.IsObject():
		return errors.New("an array lies directly in an array")
	}
	filename, of := v.Get("filename").String(), v.Get("content_type").String()
	disposition := multipart.FileContentDisposition(name, filename)
	if filename == "" {
		disposition = strings.TrimSuffix(disposition, `; filename=""`)
	}
	kind := "text/plain; charset=utf-8"
	content := []byte(v.Get("text").String())
	if encoded := v.Get("base64"); encoded.Exists() == v.Get("text").Exists() {
		return errors.New("a part needs its content, as text or base64")
	} else if encoded.Exists() {
		kind = "application/octet-stream"
		var err error
		if content, err = base64.StdEncoding.DecodeString(encoded.String()); err != nil {
			return errors.New("base64 is not valid")
		}
	}
	kind = cmp.Or(of, kind)
	if _, _, err := mime.ParseMediaType(kind); err != nil {
		return errors.New("content_type is no media type such as image/png")
	}
	part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {disposition}, "Content-Type": {kind}})
	if err == nil {
		_, err = part.Write(content)
	}
	return err
}
