// Package generators pins what code imports that oapi-codegen has made.
package generators

import _ "github.com/oapi-codegen/runtime"
