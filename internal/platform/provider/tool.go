package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// toolCall is what a request of the Model Context Protocol has beside others.
type toolCall struct {
	// id is that of the message; its answer repeats it.
	id string
	// opening: it begins a session, and so belongs to none.
	opening bool
	// secret names the secret that it carries; shared says that other calls may have its session, which a secret that
	// is not stored forbids.
	secret string
	shared bool
	// session is the one that it belongs to, once it has joined it.
	session *session
}

// codeTool is the code of a tool that says that it failed; the protocol has none.
const codeTool = "tool_error"

// refusedCodes are the codes of JSON-RPC errors by which a server says that it did not begin: it cannot read the
// message, knows no such method or tool, does not take the arguments, does not have what they name, or asks for a
// person first.
var refusedCodes = []string{"-32700", "-32600", "-32601", "-32602", "-32002", "-32042"}

// prepareTool renders the call of a tool.
func prepareTool(svc *catalog.Service, call *catalog.Call, params json.RawMessage, secret Secret) (Request, error) {
	arguments := bytes.TrimSpace(secret.fill(params))
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = []byte("{}")
	}
	base, err := secret.base(svc)
	if err != nil {
		return Request{}, err
	}
	r := message("tools/call", []byte(`{"name":`+quote(call.Tool)+`,"arguments":`), arguments, []byte("}"))
	r.URL, r.PlatformID, r.tool.shared = base, svc.PlatformID, true
	return r, secret.apply(svc, &r)
}

// message is a request of JSON-RPC with an id of its own: answers of one session are told apart by it.
func message(method string, params ...[]byte) Request {
	id := uuid.NewString()
	head := []byte(`{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":`)
	return Request{
		Method: http.MethodPost, Header: rpcHeader(), Body: slices.Concat([][]byte{head}, params,
			[][]byte{[]byte("}")}),
		tool: &toolCall{id: id},
	}
}

func rpcHeader() http.Header {
	return http.Header{
		"User-Agent": {userAgent}, "Accept": {"application/json, text/event-stream"},
		"Content-Type": {"application/json"},
	}
}

// readNoSession reads an answer to a call whose session the server did not know. It goes on in a new one: at once where
// the old one had worked, else as the retry policy says.
func readNoSession(ans Answer) Reading {
	r := Reading{Kind: NotArrived, Reason: ReasonNoSession, Status: ans.Status,
		Message: "The server no longer knew the session."}
	if ans.Proven {
		r.Kind, r.Reason = RetryLater, ReasonBusy
	}
	return r
}

// readTool reads the answer to a call of a tool.
func readTool(ans Answer) Reading {
	unreadable := Reading{Kind: Unknown, Reason: ReasonUnreadable, Status: ans.Status}
	body := bytes.TrimSpace(ans.Body)
	if !validJSON(body) {
		return unreadable
	}
	doc := parse(body)
	if failed := doc.Get("error"); failed.IsObject() {
		r := Reading{Kind: Unknown, Reason: ReasonUnexpected, Status: ans.Status, Code: named(failed, "code"),
			Message: named(failed, "message")}
		if slices.Contains(refusedCodes, r.Code) {
			r.Kind, r.Reason = Refused, ReasonRefused
		}
		return r
	}
	result := doc.Get("result")
	if doc.Get("id").String() != ans.toolCall || !result.IsObject() {
		return unreadable
	}
	text := textOf(result.Get("content"))
	if result.Get("isError").Bool() {
		return Reading{Kind: Refused, Reason: ReasonRefused, Status: ans.Status, Code: codeTool,
			Message: clean(text, maxText)}
	}
	return Reading{Kind: Success, Output: toolOutput(result, text)}
}

// toolOutput is what a flow sees of a result: its structured content, else its text and the blocks of its content.
func toolOutput(result gjson.Result, text string) json.RawMessage {
	if structured := result.Get("structuredContent"); structured.IsObject() {
		return bounded([]byte(structured.Raw))
	}
	content := result.Get("content").Raw
	if content == "" {
		content = "[]"
	}
	if size := len(content) + len(text); size > maxOutput {
		return truncated(size)
	}
	return bounded([]byte(`{"text":` + quote(text) + `,"content":` + content + `}`))
}

// textOf is the text of the blocks of a content, in lines.
func textOf(content gjson.Result) string {
	var lines []string
	content.ForEach(func(_, block gjson.Result) bool {
		if block.Get("type").String() == "text" {
			lines = append(lines, block.Get("text").String())
		}
		return true
	})
	return strings.Join(lines, "\n")
}

// statusText says what an answer to a message was, for a person.
func statusText(ans *Answer) string {
	text := "status " + strconv.Itoa(ans.Status)
	if said := excerpt(ans); said != "" && ans.Status/100 != 2 {
		text += ": " + said
	}
	return text
}
