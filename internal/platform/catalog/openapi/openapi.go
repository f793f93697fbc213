// Package openapi turns an OpenAPI 3.0 or 3.1 document of a third party into a platform of the catalog. It owns the
// reading of such documents and the choices that the conversion needs.
//
// It promises that what it writes loads as a catalog file, that the same document always gives the same bytes, that
// time and memory stay bounded however references and aliases lead into one another, and that whatever is not carried
// over as it was is reported with its place. Nothing is ever fetched. It knows neither files nor commands.
package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Options are the caller's choices.
type Options struct {
	// PlatformID is the id of the platform; empty makes one of the document's title.
	PlatformID string
	// BaseURL is the address that relative server addresses count from; empty for none.
	BaseURL string
	// Auth names security schemes of the document, the preferred one first; operations that take none of them and need
	// one are left out. Empty chooses.
	Auth []string
	// Only are patterns of operations, see only.go; what none of them matches is skipped. Empty takes all.
	Only []string
	// Account says whose a credential is, which limits of the document need; without it they are left out.
	Account Account
	// OwnerLimited leaves the limits of the document out although there is an account: the owner of its credentials
	// sets them.
	OwnerLimited bool
}

// Result is an imported platform.
type Result struct {
	PlatformID string
	// YAML is the catalog file.
	YAML []byte
	// Operations are those of the document; Skipped of them were not asked for, LeftOut of them could become no
	// actions.
	Operations, Skipped, LeftOut, Services, Actions int
	// Report lists what was not carried over as it was, by line.
	Report []Entry
}

// Bounds of the result. Schemas are repeated in every action that needs them; when all of them together are too large,
// each gets less room.
const (
	maxSchema = 64 << 10
	minSchema = 2 << 10
	maxYAML   = 12 << 20
	maxText   = 2000
	// maxWork is how many values are converted at most, maxVisits how many are looked at besides: two hundred times
	// what the largest documents of vendors need.
	maxWork   = 30_000_000
	maxVisits = 3_000_000
)

var (
	versionForm = regexp.MustCompile(`^3\.[01](\.|$)`)
	slugForm    = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// ErrNothing is wrapped by the error of a document none of whose operations can be carried over; the Result then still
// has the report.
var ErrNothing = errors.New("no operation can be carried over")

// Import converts a document, JSON or YAML.
func Import(document []byte, o Options) (*Result, error) {
	var twice []Entry
	root, err := parse(document, func(pointer string, line int) {
		twice = append(twice, Entry{Pointer: pointer, Line: line, Effect: Dropped,
			Message: "the name stands twice; the first one counts"})
	})
	if err != nil {
		return nil, err
	}
	if !root.is(isObject) {
		return nil, errors.New("the document must be an object")
	}
	version := root.get("openapi")
	switch {
	case root.get("swagger") != nil:
		return nil, errors.New("this is a Swagger 2.0 document; convert it to OpenAPI 3 first")
	case version == nil || !versionForm.MatchString(version.text):
		return nil, errors.New("the document must name OpenAPI version 3.0 or 3.1 in its field openapi")
	}
	var base *url.URL
	if o.BaseURL != "" {
		if base, err = url.Parse(o.BaseURL); err != nil || base.Host == "" {
			return nil, fmt.Errorf("the base URL %q is no whole address", o.BaseURL)
		}
	}
	if o.PlatformID != "" && !slugForm.MatchString(o.PlatformID) {
		return nil, fmt.Errorf("the platform id %q must be a slug such as my_platform", o.PlatformID)
	}
	only, err := newSelection(o.Only)
	if err != nil {
		return nil, err
	}
	for limit := maxSchema; ; limit /= 2 {
		im := newImporter(root, base, limit)
		im.auth, im.only, im.account, im.owned = o.Auth, only, o.Account, o.OwnerLimited
		im.old = strings.HasPrefix(version.text, "3.0")
		for _, e := range twice {
			im.report.seen[e] = true
			im.report.entries = append(im.report.entries, e)
		}
		result, err := im.run(o)
		if err != nil || len(result.YAML) <= maxYAML || limit <= minSchema {
			return result, err
		}
	}
}

type importer struct {
	root    place
	base    *url.URL
	old     bool // OpenAPI 3.0
	limit   int
	work    int
	visited int
	auth    []string       // the caller's
	only    *selection     // the caller's
	account Account        // the caller's
	owned   bool           // OwnerLimited
	offers  map[string]int // of security schemes, by name
	report  report
	result  Result
	loop    loopSearch
	units   map[unitKey]*unit
	found   map[string]place
	used    map[string]bool
	names   map[string]string // of schemas, by pointer
	taken   map[string]int

	platform     string
	services     []*service
	serviceByKey map[serviceKey]*service
	serviceIDs   map[string]int
	bucketNames  map[string]int
}

type serviceKey struct{ tag, base, scheme string }

type service struct {
	id, name, description string
	base                  string
	auth                  auth
	docs                  string
	actions, buckets      *node
	ids                   map[string]int
}

func newImporter(root *node, base *url.URL, limit int) *importer {
	return &importer{
		root: place{root, ""}, base: base, limit: limit, report: report{seen: map[Entry]bool{}}, loop: newLoopSearch(),
		units: map[unitKey]*unit{}, found: map[string]place{}, used: map[string]bool{}, names: map[string]string{},
		taken: map[string]int{}, serviceByKey: map[serviceKey]*service{}, serviceIDs: map[string]int{},
		bucketNames: map[string]int{},
	}
}

func (im *importer) run(o Options) (*Result, error) {
	info := im.root.at("info")
	title := firstText(info.get("title").str(), "Imported platform")
	im.platform = o.PlatformID
	if im.platform == "" {
		if im.platform = slugOf(title); im.platform == "" {
			return nil, errors.New("no platform id can be made of the title: name one")
		}
	}
	im.rest(im.root, "openapi", "info", "servers", "paths", "components", "security", "tags", "externalDocs",
		"jsonSchemaDialect")
	im.rest(info, "title", "description", "summary", "version")
	if err := im.countOffers(); err != nil {
		return nil, err
	}
	im.paths()
	if im.visited > maxVisits {
		return nil, errors.New("the bodies of the operations name too many fields together; choose fewer operations")
	}
	im.unused()
	if err := im.only.unmatched(); err != nil {
		return nil, err
	}
	im.services = slices.DeleteFunc(im.services, func(s *service) bool { return len(s.actions.fields) == 0 })
	r := &im.result
	r.PlatformID, r.Services, r.Report = im.platform, len(im.services), im.report.sorted()
	if r.Actions == 0 {
		return r, fmt.Errorf("%w: the document has %d", ErrNothing, r.Operations)
	}
	description := firstText(info.get("description").str(), info.get("summary").str(), title)
	platform := object("id", text(im.platform), "name", text(clip(title, 200)), "description",
		text(clip(description, maxText)),
		"status", text("active"), "docs_url", text(clip(im.root.at("externalDocs").get("url").str(), 1000)))
	if im.account != (Account{}) {
		platform.set("account", im.account.node())
	}
	platform.set("services", list())
	for _, s := range im.services {
		platform.get("services").set("", s.node())
	}
	var e emitter
	e.WriteString("# Made of the OpenAPI document of this platform by `flowlane catalog import openapi`.\n")
	e.block(platform, 0)
	r.YAML = e.Bytes()
	return r, nil
}

func (s *service) node() *node {
	out := object("id", text(s.id), "name", text(clip(s.name, 200)), "description", text(clip(s.description, maxText)),
		"kind", text("api"), "protocol", text("REST"), "auth_method", text(s.auth.method))
	if s.auth.signIn != nil {
		out.set("sign_in", s.auth.signIn)
	}
	for _, f := range object("base_url", text(s.base), "docs_url", text(s.docs), "credential_fields", s.auth.fields(),
		"requires_connection", boolean(s.auth.method != "none"), "status", text("active")).fields {
		out.set(f.name, f.value)
	}
	if len(s.buckets.fields) > 0 {
		out.set("rate_buckets", s.buckets)
	}
	out.set("actions", s.actions)
	return out
}

// serviceOf returns the service of an operation: one per first tag, or one for what has no tag. What goes to another
// address or authenticates otherwise needs a service of its own.
func (im *importer) serviceOf(op place, base string, way auth) *service {
	tags := op.at("tags").children()
	tag, about := "", place{}
	if len(tags) > 0 {
		tag = strings.TrimSpace(tags[0].str())
		for _, other := range tags[1:] {
			im.report.add(Changed, other, "an action belongs to the service of its first tag, not to this one too")
		}
	}
	key := serviceKey{tag, base, way.scheme}
	if s, ok := im.serviceByKey[key]; ok {
		return s
	}
	for _, t := range im.root.at("tags").children() {
		if tag != "" && t.get("name").str() == tag {
			about = t
			im.rest(t, "name", "description", "externalDocs")
		}
	}
	slug := slugOf(tag)
	if slug == "" {
		slug = "api"
	}
	s := &service{
		id: im.platform + "__" + unique(im.serviceIDs, slug), name: firstText(tag, "API"), base: base, auth: way,
		docs: clip(about.at("externalDocs").get("url").str(), 1000), actions: list(), buckets: &node{kind: isObject},
		ids: map[string]int{},
	}
	s.description = strings.TrimSpace(clip(firstText(about.get("description").str(), s.name), maxText-300))
	im.serviceByKey[key] = s
	im.services = append(im.services, s)
	return s
}

func (im *importer) actionID(s *service, method, path string, op place) string {
	slug := slugOf(op.get("operationId").str())
	if slug == "" {
		slug = operationSlug(method, path)
	}
	if slug == "" {
		slug = method
	}
	id := unique(s.ids, slug)
	if id != slug {
		im.report.add(Changed, op, "the id "+slug+" is taken; the action is called "+id)
	}
	return s.id + "__" + id
}

// rest reports what stands beside the parts that are read.
func (im *importer) rest(at place, read ...string) {
	if !at.is(isObject) {
		return
	}
	for _, f := range at.children() {
		if name := lastStep(at, f); !slices.Contains(read, name) {
			im.report.add(Dropped, f, "the catalog has no place for "+clip(name, 60))
		}
	}
}

// unused reports the components that no action needs.
func (im *importer) unused() {
	for _, kind := range im.root.at("components").children() {
		for _, c := range kind.children() {
			if !im.used[c.pointer] {
				im.report.add(Unused, c, "no action needs it")
			}
		}
	}
}
