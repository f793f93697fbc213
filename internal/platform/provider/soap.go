package provider

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // WS-Security names it
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/internal/media"
	"flowlane/internal/platform/catalog"
)

const (
	soap11 = "http://schemas.xmlsoap.org/soap/envelope/"
	soap12 = "http://www.w3.org/2003/05/soap-envelope"

	oasis         = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-"
	profile       = oasis + "username-token-profile-1.0#"
	nonceBytes    = 16
	createdFormat = "2006-01-02T15:04:05.000Z"
)

// envelope writes the body of a call of SOAP. Where user and password go into it, that is the second part, which is
// empty until the call is sent.
func (p *preparer) envelope(r *Request, body gjson.Result) error {
	spec := p.svc.SOAP
	action, err := p.text("soap action", p.call.Compiled.SOAPAction)
	if err != nil {
		return err
	}
	header, err := p.render("soap header", p.call.Compiled.SOAPHeader)
	if err != nil {
		return err
	}
	namespace, contentType := soap11, "text/xml; charset=utf-8"
	if spec.Version == "1.2" {
		namespace, contentType = soap12, "application/soap+xml; charset=utf-8"
		if action != "" {
			contentType += "; action=" + strconv.Quote(action)
		}
	} else if err := setHeader(r.Header, "SOAPAction", `"`+action+`"`); err != nil {
		return err
	}
	head := []byte(`<?xml version="1.0" encoding="UTF-8"?><soap:Envelope xmlns:soap="` + namespace + `"`)
	for _, name := range slices.Sorted(maps.Keys(spec.Namespaces)) {
		head = fmt.Appendf(head, ` xmlns:%s="%s"`, name, attributeText.Replace(spec.Namespaces[name]))
	}
	head = append(head, "><soap:Header>"...)
	if header != nil && string(header) != "null" {
		if head, err = media.AppendElements(head, gjson.ParseBytes(header)); err != nil {
			return fmt.Errorf("%w: soap header: %w", ErrParams, err)
		}
	}
	tail, err := media.AppendElements([]byte("</soap:Header><soap:Body>"), body)
	if err != nil {
		return fmt.Errorf("%w: body: %w", ErrParams, err)
	}
	tail = append(tail, "</soap:Body></soap:Envelope>"...)
	r.Body, r.soap, r.security = [][]byte{head, nil, tail}, true, spec.Security
	r.Header.Set("Accept", strings.SplitN(contentType, ";", 2)[0])
	return setHeader(r.Header, "Content-Type", contentType)
}

var attributeText = strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&#34;")

// secure puts user and password into the header of an envelope, just before it is sent: a digest holds only so long.
func (in *secret) secure(r *Request) error {
	if in.user == "" {
		return fmt.Errorf("%w: the service takes user and password of a basic_auth credential", ErrSecretShape)
	}
	put := func(r *Request, token string) error {
		header, err := media.AppendElements(nil,
			gjson.Parse(`{"wsse:Security":{"@soap:mustUnderstand":"1","@xmlns:wsse":"`+oasis+
				`wssecurity-secext-1.0.xsd","@xmlns:wsu":"`+oasis+
				`wssecurity-utility-1.0.xsd","wsse:UsernameToken":{"wsse:Username":`+
				quote(in.user)+`,`+token+`}}}`))
		if err != nil {
			return probeError(InvalidShape, nil,
				"User or password hold characters that XML cannot carry; rotate the credential.")
		}
		r.Body = slices.Clone(r.Body)
		r.Body[1] = header
		return nil
	}
	if in.password == "" { // it is shown
		return put(r, `"wsse:Password":`+quote(Shown))
	}
	kind := r.security
	r.sign = func(_ context.Context, s *Sender, r *Request) error {
		if kind == catalog.SecurityText {
			return put(r, `"wsse:Password":{"@Type":"`+profile+`PasswordText","#text":`+quote(in.password)+`}`)
		}
		nonce := make([]byte, nonceBytes)
		if _, err := io.ReadFull(s.random, nonce); err != nil {
			return probeError(UnknownClass, err, "There is no random number for the call.")
		}
		created := s.now().UTC().Format(createdFormat)
		//nolint:gosec // WS-Security names it
		sum := sha1.Sum(slices.Concat(nonce, []byte(created), []byte(in.password)))
		digest := base64.StdEncoding.EncodeToString(sum[:])
		r.masks = append(slices.Clone(r.masks), newMask(digest))
		return put(r, `"wsse:Password":{"@Type":"`+profile+`PasswordDigest","#text":"`+digest+
			`"},"wsse:Nonce":{"@EncodingType":"`+
			oasis+`soap-message-security-1.0#Base64Binary","#text":"`+base64.StdEncoding.EncodeToString(nonce)+
			`"},"wsu:Created":"`+created+`"`)
	}
	return nil
}

// openEnvelope takes out of an envelope what its body holds: what is in its one element, or the fault, which is also
// given in one form for both versions: code (without prefix), string, name (of the first element of its detail) and
// detail. Both are nil for what is no envelope.
func openEnvelope(document []byte) (value, fault []byte) {
	body := gjson.ParseBytes(document).Get("Envelope.Body")
	if !body.Exists() {
		return nil, nil
	}
	value = []byte("{}")
	body.ForEach(func(name, content gjson.Result) bool {
		if strings.HasPrefix(name.String(), "@") {
			return true
		}
		if name.String() == "Fault" {
			fault, value = faultValue(content), []byte(body.Raw)
		} else if content.Type == gjson.JSON {
			value = []byte(content.Raw)
		}
		return false
	})
	return value, fault
}

func faultValue(f gjson.Result) []byte {
	code, text, detail := f.Get("faultcode"), f.Get("faultstring"), f.Get("detail")
	if f.Get("Code").Exists() {
		code, text, detail = f.Get("Code.Value"), f.Get("Reason.Text"), f.Get("Detail")
	}
	if text.IsArray() { // one for each language
		text = text.Get("0")
	}
	if text.IsObject() {
		text = text.Get(`\#text`)
	}
	if code.IsObject() {
		code = code.Get(`\#text`)
	}
	_, local, prefixed := strings.Cut(code.String(), ":")
	if !prefixed {
		local = code.String()
	}
	name, first := "", "null"
	detail.ForEach(func(key, content gjson.Result) bool {
		if name = key.String(); strings.HasPrefix(name, "@") || name == "#text" {
			name = ""
			return true
		}
		first = content.Raw
		return false
	})
	if detail.Type == gjson.String && detail.Str != "" {
		first = detail.Raw
	}
	var b bytes.Buffer
	b.WriteString(`{"code":` + quote(local) + `,"string":` + quote(text.String()) + `,"name":` + quote(name) +
		`,"detail":` + first + `}`)
	return storable(b.Bytes())
}

// notDone are the codes of faults after which nothing was done: the message was wrong, or not understood.
var notDone = []string{"Client", "Sender", "MustUnderstand", "VersionMismatch", "DataEncodingUnknown"}

// readProtocol reads what an answer proves by the rules of its protocol: a fault of SOAP, the errors of GraphQL. told
// is false where they say nothing.
func readProtocol(act *catalog.Action, ans *Answer) (r Reading, known bool) {
	spec := &act.Call.Answer
	accepted := slices.Contains(spec.Success, ans.Status) || slices.Contains(spec.Pending, ans.Status)
	refused := false
	switch {
	case ans.fault != nil:
		code := gjson.GetBytes(ans.fault, "code").Str
		first, _, _ := strings.Cut(code, ".")
		refused = slices.Contains(notDone, first)
		known = refused || accepted
	case act.Call.GraphQL != nil && ans.Value(act) != nil:
		doc := parse(ans.Value(act))
		failed := doc.Get("errors.0").Exists()
		// Without data the operation was not begun; else fields failed, of which only a query does nothing.
		refused = failed && (!doc.Get("data").Exists() || !act.Call.GraphQL.Mutation)
		known = failed && (accepted || ans.Status == http.StatusBadRequest ||
			ans.Status == http.StatusUnprocessableEntity)
	}
	if !known {
		return r, false
	}
	r = Reading{Kind: Unknown, Reason: ReasonUnexpected, Status: ans.Status}
	if refused {
		r.Kind, r.Reason = Refused, ReasonRefused
	}
	r.Code, r.Message = readFault(spec, ans)
	return r, true
}
