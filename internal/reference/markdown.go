package reference

import (
	"html/template"
	"regexp"
	"strings"
)

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	bold       = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	link       = regexp.MustCompile(`\[([^\]]+)\]\((https?://[^)\s"]+)\)`)
)

// markdown renders what descriptions have of Markdown: paragraphs, lists, code, bold words and links.
func markdown(text string) template.HTML {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		switch {
		case lines[0] == "":
		case strings.HasPrefix(lines[0], "- "):
			out.WriteString("<ul>")
			for item := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSpace(block), "- "), "\n- ") {
				out.WriteString("<li>" + inline(item) + "</li>")
			}
			out.WriteString("</ul>")
		default:
			out.WriteString("<p>" + inline(block) + "</p>")
		}
	}
	return template.HTML(out.String()) //nolint:gosec // inline escapes
}

// inline renders a line. Code is taken out first, so that nothing in it is taken for more.
func inline(text string) string {
	var code []string
	text = inlineCode.ReplaceAllStringFunc(text, func(s string) string {
		code = append(code, "<code>"+template.HTMLEscapeString(strings.Trim(s, "`"))+"</code>")
		return "\x00"
	})
	text = template.HTMLEscapeString(strings.ReplaceAll(text, "\ufffd", ""))
	text = strings.ReplaceAll(text, "\ufffd", "\x00") // the escaping replaces NUL
	text = bold.ReplaceAllString(text, "<strong>$1</strong>")
	text = link.ReplaceAllString(text, `<a href="$2" rel="noreferrer">$1</a>`)
	for _, c := range code {
		text = strings.Replace(text, "\x00", c, 1)
	}
	return text
}
