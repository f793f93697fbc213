package provider

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// NextPage is where the answer to a lookup goes on: by a cursor or at an address. Neither: it was the last page.
type NextPage struct{ Cursor, Link string }

// Last reports whether there is no next page.
func (n NextPage) Last() bool { return n == NextPage{} }

// LookupNext reads where the answer to a lookup goes on. The error wraps ErrUnreadable: then nobody knows what the
// answer leaves out.
func LookupNext(act *catalog.Action, ans *Answer) (NextPage, error) {
	return Next(act, act.Call.Lookup.Page, ans)
}

// Next reads where an answer goes on that comes in such pages, nil for one; act may be nil. The error wraps
// ErrUnreadable.
func Next(act *catalog.Action, page *catalog.Page, ans *Answer) (next NextPage, err error) {
	link := nextLink(ans.Header)
	switch {
	case page == nil && link != "":
		return next, fmt.Errorf("%w: it goes on at another address", ErrUnreadable)
	case page == nil:
		return next, nil
	case page.LinkHeader:
		return NextPage{Link: link}, nil
	}
	field, to := page.Cursor, &next.Cursor
	if page.Link != "" {
		field, to = page.Link, &next.Link
	}
	value := gjson.GetBytes(ans.Value(act), field)
	text, ok := scalar(value)
	if !ok || value.Type == gjson.True {
		return next, fmt.Errorf("%w: %s leads nowhere", ErrUnreadable, field)
	}
	if value.Type != gjson.False {
		*to = text
	}
	return next, nil
}

// nextLink returns the address of the next page in a header Link (RFC 8288); empty where there is none.
func nextLink(h http.Header) string {
	for _, line := range h.Values("Link") {
		for {
			_, rest, found := strings.Cut(line, "<")
			if !found {
				break
			}
			address, rest, closed := strings.Cut(rest, ">")
			if !closed {
				break
			}
			params, _, _ := strings.Cut(rest, "<")
			for param := range strings.SplitSeq(params, ";") {
				name, value, _ := strings.Cut(strings.Trim(param, " ,"), "=")
				rels := strings.Fields(strings.ToLower(strings.Trim(value, `"`)))
				if strings.EqualFold(strings.TrimSpace(name), "rel") && slices.Contains(rels, "next") {
					return address
				}
			}
			line = rest
		}
	}
	return ""
}

// At returns the request for another page of what r asks for. The error wraps ErrUnreadable: the credential goes to no
// other host.
func (r Request) At(link string) (Request, error) {
	from, err := url.Parse(r.URL)
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	to, err := from.Parse(link)
	if err != nil || to.Scheme != from.Scheme || to.Host != from.Host || to.User != nil {
		return r, fmt.Errorf("%w: the next page is at no address of %s", ErrUnreadable, from.Host)
	}
	to.Fragment, to.RawFragment = "", ""
	r.URL = to.String()
	return r, nil
}
