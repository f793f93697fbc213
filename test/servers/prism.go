package servers

import (
	_ "embed"
	"testing"
)

//go:embed prism.js
var prism string

// Prism starts Prism on a vendor's OpenAPI document and returns its host and port. A request that the document allows it
// passes on to upstream, an address such as http://127.0.0.1:8080; where that is empty it answers with the first status of
// success that the document has. Any other request it answers with a problem: 422 says what is wrong with it, 404 that
// there is no such operation. The operations, each with the path that is sent and whatever names in it, as "POST /v2/people/{id}",
// are those of the document that it gets; without any it gets all.
func Prism(t *testing.T, document, upstream string, operations ...string) string {
	t.Helper()
	return Start(t, prism, append([]string{document, upstream}, operations...)...)
}
