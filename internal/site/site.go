// Package site makes a site of the documentation: HTML with one stylesheet, which asks nothing of any other host and
// needs no script. All its addresses are relative, so that it can be served at any path or be published as a folder. It
// knows pages in Markdown and their order, nothing of what they say.
package site

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// frontPage is the page of a folder itself.
const frontPage = "README.md"

// Options tune a site; the zero value is that of one that stands alone.
type Options struct {
	// Reference is the address of the reference of the API, seen from the front page; empty where there is none.
	Reference string
}

// Site is the documentation as it is served.
type Site struct {
	// files are its files by their path: index.html, platforms/five9.html, style.css.
	files map[string][]byte
}

//go:embed assets/page.html
var pageText string

//go:embed assets/style.css
var style []byte

// link is a page in the navigation or a heading in a page.
type link struct {
	Text, Address string
	Here          bool
}

// group is what stands together in the navigation.
type group struct {
	Name  string
	Links []link
}

// page is one page on its way to HTML.
type page struct {
	source, address, title string
	headings               []link
	html                   template.HTML
}

// New makes a site of all *.md in files, and of the pictures (*.webp, *.svg) as they are. The error names what cannot
// be read or stands in no group of the navigation.
func New(files fs.FS, o Options) (*Site, error) {
	layout, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("read the layout of a page: %w", err)
	}
	pages, err := read(files)
	if err != nil {
		return nil, err
	}
	s := &Site{files: map[string][]byte{"style.css": style}}
	pictures, err := fs.Glob(files, "pictures/*.*")
	for _, name := range pictures {
		if s.files[name], err = fs.ReadFile(files, name); err != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the pictures: %w", err)
	}
	for _, p := range pages {
		nav, err := navigation(pages, p, o)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err := layout.Execute(&out, map[string]any{
			"Title": p.title, "Root": rootOf(p.address), "Groups": nav, "Headings": p.headings, "Body": p.html,
		}); err != nil {
			return nil, fmt.Errorf("lay out %s: %w", p.source, err)
		}
		s.files[p.address] = out.Bytes()
	}
	return s, nil
}

// read turns the pages into HTML, by their source.
func read(files fs.FS) (map[string]*page, error) {
	pages := map[string]*page{}
	err := fs.WalkDir(files, ".", func(source string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(source) != ".md" {
			return err
		}
		markdown, err := fs.ReadFile(files, source)
		if err != nil {
			return err //nolint:wrapcheck // names the file
		}
		pages[source], err = render(source, markdown)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the documentation: %w", err)
	}
	return pages, nil
}

// render turns a page into HTML.
func render(source string, markdown []byte) (*page, error) {
	p := &page{source: source, address: addressOf(source), title: source}
	md := goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(htmlLinks{},
			100))),
	)
	tree := md.Parser().Parse(text.NewReader(markdown))
	p.outline(tree, markdown)
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, markdown, tree); err != nil {
		return nil, fmt.Errorf("render %s: %w", source, err)
	}
	p.html = template.HTML(out.String()) //nolint:gosec // the pages are ours, and raw HTML in them is left out
	return p, nil
}

// outline takes the title and the headings below it.
func (p *page) outline(tree ast.Node, markdown []byte) {
	for n := tree.FirstChild(); n != nil; n = n.NextSibling() {
		heading, ok := n.(*ast.Heading)
		if !ok || heading.Level > 2 {
			continue
		}
		words := plain(heading, markdown)
		if heading.Level == 1 {
			p.title = words
			continue
		}
		if id, ok := heading.AttributeString("id"); ok {
			p.headings = append(p.headings, link{Text: words, Address: "#" + string(id.([]byte))})
		}
	}
}

// plain is the text of a node without its marks.
func plain(n ast.Node, markdown []byte) string {
	var words strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			words.Write(t.Value(markdown))
		} else {
			words.WriteString(plain(c, markdown))
		}
	}
	return words.String()
}

// htmlLinks makes links to pages ones to their HTML.
type htmlLinks struct{}

// Transform implements parser.ASTTransformer.
func (htmlLinks) Transform(tree *ast.Document, _ text.Reader, _ parser.Context) {
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if l, ok := n.(*ast.Link); ok && entering {
			target, anchor, _ := strings.Cut(string(l.Destination), "#")
			if !strings.Contains(target, ":") && path.Ext(target) == ".md" {
				l.Destination = []byte(addressOf(target))
				if anchor != "" {
					l.Destination = append(l.Destination, "#"+anchor...)
				}
			}
		}
		return ast.WalkContinue, nil
	})
}

// addressOf is the path of a page's HTML.
func addressOf(source string) string {
	if path.Base(source) == frontPage {
		return strings.TrimSuffix(source, frontPage) + "index.html"
	}
	return strings.TrimSuffix(source, ".md") + ".html"
}

// rootOf is the way from a page to the folder of the site: empty or "../".
func rootOf(address string) string { return strings.Repeat("../", strings.Count(address, "/")) }

// sections is the order of the navigation. A folder stands for all its pages.
var sections = []struct {
	name  string
	pages []string
}{
	{"Begin", []string{frontPage, "tutorial.md", "concepts.md"}},
	{"Write flows", []string{"flows.md", "expressions.md", "outcomes.md", "limits.md", "cookbook.md", "webhooks.md",
		"clients.md"}},
	{"Platforms", []string{
		"credentials.md", "catalog.md", "catalog-keys.md", "openapi-import.md", "platforms", "simulator.md",
	}},
	{"Run it", []string{
		"console.md", "cli.md", "deploy.md", "operations.md", "availability.md", "scale.md", "security.md",
	}},
	{"Make it", []string{"architecture.md", "measurements.md"}},
}

// navigation is the links of a page to all others.
func navigation(pages map[string]*page, at *page, o Options) ([]group, error) {
	left := maps.Clone(pages)
	out := make([]group, 0, len(sections))
	for _, section := range sections {
		g := group{Name: section.name}
		for _, name := range section.pages {
			for _, p := range under(left, name) {
				delete(left, p.source)
				if path.Dir(p.source) == "." || path.Base(p.source) == frontPage ||
					path.Dir(at.source) == path.Dir(p.source) {
					g.Links = append(g.Links, link{Text: p.title, Address: rootOf(at.address) + p.address,
						Here: p == at})
				}
			}
		}
		if len(g.Links) > 0 {
			out = append(out, g)
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("%s: in no section of the navigation", strings.Join(slices.Sorted(maps.Keys(left)),
			", "))
	}
	if o.Reference != "" {
		out = append(out, group{Name: "API", Links: []link{{Text: "Reference", Address: rootOf(at.address) +
			o.Reference}}})
	}
	return out, nil
}

// under is a page, or the pages of a folder with its front page first.
func under(pages map[string]*page, name string) []*page {
	var out []*page
	for _, p := range pages {
		if p.source == name || path.Dir(p.source) == name {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *page) int {
		if a.source == b.source {
			return 0
		}
		if path.Base(a.source) == frontPage {
			return -1
		}
		if path.Base(b.source) == frontPage {
			return 1
		}
		return cmp.Compare(a.source, b.source)
	})
	return out
}

// Paths are the paths of all files, in order.
func (s *Site) Paths() []string { return slices.Sorted(maps.Keys(s.files)) }

// File is a file by its path; false where there is none.
func (s *Site) File(name string) ([]byte, bool) {
	text, ok := s.files[name]
	return text, ok
}

// Write writes the site into a folder, which is made where it is missing.
func (s *Site) Write(dir string) error {
	for name, content := range s.files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // to be published
			return fmt.Errorf("write the site: %w", err)
		}
		if err := os.WriteFile(at, content, 0o644); err != nil { //nolint:gosec // to be published
			return fmt.Errorf("write the site: %w", err)
		}
	}
	return nil
}
