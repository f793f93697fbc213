// Package schema holds the migrations of the schema flow, numbered and applied in order by package pg. A migration that
// has been released is never edited: what follows it is a new file.
package schema

import "embed"

// FS has every migration at its root.
//
//go:embed *.sql
var FS embed.FS
