package catalog

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed data/*.yaml
var embedded embed.FS

// Options says what is loaded beside the platforms that come with the program.
type Options struct {
	// Dir is a folder with one platform per *.yaml or *.yml file; empty for none.
	Dir string
	// Files are further files with one platform each.
	Files []string
	// BaseURLs replaces the base URL of every service of a platform, by platform id, and where its tokens are had: at
	// the paths that the catalog names. It is the operator's setting, for example for a provider's sandbox or a
	// simulated platform.
	BaseURLs map[string]string
}

// Load reads and checks every platform. The error names file and line of each mistake, not only the first.
func Load(o Options) (*Catalog, error) {
	own, err := loadOwn()
	if err != nil {
		return nil, err
	}
	sources, err := embeddedSources()
	if err != nil {
		return nil, err
	}
	further, err := o.sources()
	if err != nil {
		return nil, err
	}
	l := loading{c: newCatalog()}
	for i, p := range own.order {
		if _, moves := o.BaseURLs[p.ID]; moves {
			l.read(sources[i], false)
		} else {
			l.c.share(p)
		}
	}
	for _, src := range further {
		l.read(src, false)
	}
	return l.end(o.BaseURLs)
}

// loadOwn returns the platforms that come with the program, in the order of their files. They are read once, since a
// process may load more than one catalog, and never change afterwards.
var loadOwn = sync.OnceValues(func() (*Catalog, error) {
	sources, err := embeddedSources()
	if err != nil {
		return nil, err
	}
	l := loading{c: newCatalog()}
	for _, src := range sources {
		l.read(src, false)
	}
	return l.end(nil)
})

type source struct {
	name string
	text []byte
}

func embeddedSources() ([]source, error) {
	names, err := fs.Glob(embedded, "data/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var out []source
	for _, name := range names {
		text, err := embedded.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("catalog: %w", err)
		}
		out = append(out, source{"embedded " + name, text})
	}
	return out, nil
}

// sources are the files that are loaded beside those that come with the program.
func (o Options) sources() ([]source, error) {
	names, err := filesOf(o.Dir)
	if err != nil {
		return nil, err
	}
	var out []source
	for _, name := range append(names, o.Files...) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("catalog file: %w", err)
		}
		out = append(out, source{name, text})
	}
	return out, nil
}

// loading reads platforms into a catalog that nobody uses yet.
type loading struct {
	c      *Catalog
	checks []*checker
	errs   []error
}

// read adds the platform of a file.
func (l *loading) read(src source, private bool) {
	ch := decode(src)
	if len(ch.errs) == 0 {
		ch.p.Private = private
		l.c.add(ch)
	}
	if len(ch.errs) == 0 {
		l.checks = append(l.checks, ch)
	}
	l.errs = append(l.errs, ch.errs...)
	ch.errs = nil
}

// end checks what was read and returns the catalog. Actions of a platform refer to each other, so that everything is
// decoded before anything is checked.
func (l *loading) end(baseURLs map[string]string) (*Catalog, error) {
	for _, ch := range l.checks {
		ch.platform(l.c)
		l.errs = append(l.errs, ch.errs...)
	}
	l.errs = append(l.errs, l.c.override(baseURLs)...)
	if len(l.errs) > 0 {
		return nil, fmt.Errorf("catalog: %w", errors.Join(l.errs...))
	}
	for _, ch := range l.checks {
		ch.p.fillBuckets()
	}
	return l.c, nil
}

// filesOf lists the platforms of a folder.
func filesOf(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("catalog folder: %w", err)
	}
	var out []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// decode reads one file strictly; what is wrong with it stands in the checker's errs.
func decode(src source) *checker {
	ch := &checker{file: src.name, text: src.text}
	var p Platform
	dec := yaml.NewDecoder(bytes.NewReader(src.text))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty; it must describe one platform")
		}
		ch.decodeErrors(err)
		return ch
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		ch.fail(nil, "one file holds one platform; put the next document into a file of its own")
		return ch
	}
	ch.p = &p
	return ch
}

var (
	errorLine    = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	unknownField = regexp.MustCompile(`^field (\S+) not found in type \S+$`)
)

func (ch *checker) decodeErrors(err error) {
	texts := []string{err.Error()}
	if typed := new(yaml.TypeError); errors.As(err, &typed) {
		texts = nil
		for _, e := range typed.Errors {
			texts = append(texts, fmt.Sprint(e))
		}
	}
	for _, text := range texts {
		m := errorLine.FindStringSubmatch(text)
		if m == nil {
			ch.errs = append(ch.errs, &Mistake{File: ch.file, Message: text})
			continue
		}
		if u := unknownField.FindStringSubmatch(m[2]); u != nil {
			m[2] = "unknown key " + u[1]
		}
		line, _ := strconv.Atoi(m[1]) // digits, as the expression says
		ch.errs = append(ch.errs, &Mistake{ch.file, line, m[2]})
	}
}

// Source is a catalog file that does not lie in a folder.
type Source struct {
	// Name stands in errors.
	Name string
	Text []byte
}

// With returns a catalog that has the platforms of sources behind those of c, which stays as it is. The error names
// file and line of each mistake.
func (c *Catalog) With(sources ...Source) (*Catalog, error) {
	l := loading{c: newCatalog()}
	for _, p := range c.order {
		l.c.share(p)
	}
	for _, src := range sources {
		l.read(source{src.Name, src.Text}, true)
	}
	return l.end(nil)
}

func newCatalog() *Catalog {
	return &Catalog{platforms: map[string]*Platform{}, services: map[string]*Service{}, actions: map[string]*Action{}}
}

// share indexes a platform of another catalog, which both have from now on.
func (c *Catalog) share(p *Platform) {
	c.platforms[p.ID] = p
	c.order = append(c.order, p)
	c.serviceOrder = append(c.serviceOrder, p.Services...)
	for _, s := range p.Services {
		c.services[s.ID] = s
		c.actionOrder = append(c.actionOrder, s.Actions...)
		for _, a := range s.Actions {
			c.actions[a.ID] = a
		}
	}
}

// add indexes a decoded platform; a second one of the same id is a mistake of the later file.
func (c *Catalog) add(ch *checker) {
	p := ch.p
	if _, ok := c.platforms[p.ID]; ok {
		ch.fail([]any{"id"}, "platform %q is already described in another file", p.ID)
		return
	}
	c.platforms[p.ID] = p
	c.order = append(c.order, p)
	for i, s := range p.Services {
		if s == nil {
			ch.fail([]any{"services", i}, "the service is empty")
			return
		}
		s.PlatformID = p.ID
		if _, ok := c.services[s.ID]; ok {
			ch.fail([]any{"services", i, "id"}, "service %q is described twice", s.ID)
		}
		c.services[s.ID] = s
		c.serviceOrder = append(c.serviceOrder, s)
		for j, a := range s.Actions {
			if a == nil {
				ch.fail([]any{"services", i, "actions", j}, "the action is empty")
				return
			}
			a.ServiceID, a.PlatformID, a.service, a.platform = s.ID, p.ID, s, p
			if _, ok := c.actions[a.ID]; ok {
				ch.fail([]any{"services", i, "actions", j, "id"}, "action %q is described twice", a.ID)
			}
			c.actions[a.ID] = a
			c.actionOrder = append(c.actionOrder, a)
		}
	}
}

// override puts the operator's base URLs in place of those of the files.
func (c *Catalog) override(urls map[string]string) []error {
	var errs []error
	ids := make([]string, 0, len(urls))
	for id := range urls {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	for _, id := range ids {
		p, ok := c.platforms[id]
		if !ok {
			errs = append(errs, fmt.Errorf("base URL setting: there is no platform %q", id))
			continue
		}
		base := strings.TrimRight(urls[id], "/")
		if msg := badBaseURL(base); msg != "" {
			errs = append(errs, fmt.Errorf("base URL setting of platform %q: %s", id, msg))
			continue
		}
		for _, s := range p.Services {
			if s.BaseURL != "" {
				s.BaseURL = base
				s.SignIn.move(base)
				for i := range s.OtherAuth {
					s.OtherAuth[i].move(base)
				}
			}
		}
	}
	return errs
}

// move has tokens asked for where the platform is.
func (in *SignIn) move(base string) {
	host, _ := splitBase(base)
	for _, address := range []*string{&in.TokenURL, &in.AuthorizeURL} {
		if *address != "" {
			_, path := splitBase(*address)
			*address = host + path
		}
	}
}

func badBaseURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "it must be a whole http or https address"
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "it must not hold credentials, a query or a fragment"
	}
	return ""
}

// fillBuckets tells the buckets of a checked platform which of its actions spend them.
func (p *Platform) fillBuckets() {
	for _, s := range p.Services {
		for _, a := range s.Actions {
			for _, name := range a.Buckets {
				b := s.RateBuckets[name]
				b.MemberActionIDs = append(b.MemberActionIDs, a.ID)
				b.MaxRecordsPerRequest = max(b.MaxRecordsPerRequest, a.MaxRecordsPerRequest)
			}
		}
		for _, b := range s.RateBuckets {
			slices.Sort(b.MemberActionIDs)
		}
	}
}
