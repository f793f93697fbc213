// Package flowlane carries the API document into the binary: requests that fail are explained, and responses are
// tested, from the same text that clients read.
package flowlane

import _ "embed"

// OpenAPI is openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
