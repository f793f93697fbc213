package servers

import (
	_ "embed"
	"strings"
	"testing"
)

//go:embed prism.js
var prism string

// Prism starts Prism on OpenAPI documents of vendors and returns its host and port. A request that a document allows it
// passes on to upstream, an address such as http://127.0.0.1:8080; where that is empty it answers with what the
// document shows of the first status of success. Any other request it answers as the document says of 422 or 400, else
// with a problem: 422 says what is wrong with it, 404 that there is no such operation. The operations, each with the
// path that is sent and whatever names in it, as "POST /v2/people/{id}", are those of the documents that it gets;
// without any it gets all.
func Prism(t *testing.T, documents []string, upstream string, operations ...string) string {
	t.Helper()
	return Start(t, prism, append([]string{strings.Join(documents, ","), upstream}, operations...)...)
}
