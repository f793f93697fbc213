// Package docs carries the documentation into the binary, which serves it.
package docs

import "embed"

// Files are the pages, in Markdown, and the pictures in them: *.md, platforms/*.md and pictures/*.webp pictures/*.svg.
//
//go:embed *.md platforms/*.md pictures/*.webp pictures/*.svg
var Files embed.FS
