// Package docs carries the documentation into the binary, which serves it.
package docs

import "embed"

// Files are the pages, in Markdown: *.md and platforms/*.md.
//
//go:embed *.md platforms/*.md
var Files embed.FS
