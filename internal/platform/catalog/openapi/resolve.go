package openapi

import (
	"net/url"
	"strconv"
	"strings"
)

func itoa(i int) string { return strconv.Itoa(i) }

// maxHops is how many references may lead to one another before they count as a circle.
const maxHops = 64

// find returns the place that a reference names; false for one that leads out of the document or nowhere.
func (im *importer) find(ref string) (place, bool) {
	if p, ok := im.found[ref]; ok {
		return p, p.node != nil
	}
	p := im.lookUp(ref)
	im.found[ref] = p
	return p, p.node != nil
}

func (im *importer) lookUp(ref string) place {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || (pointer != "" && pointer[0] != '/') {
		return place{}
	}
	if plain, err := url.PathUnescape(pointer); err == nil {
		pointer = plain
	}
	return im.walk(pointer)
}

// walk goes down a JSON pointer; its place has no node where the pointer leads nowhere.
func (im *importer) walk(pointer string) place {
	at := place{im.root.node, ""}
	if pointer == "" {
		return at
	}
	for _, step := range strings.Split(pointer[1:], "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		next := at.at(step)
		if at.is(isArray) {
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(at.fields) && itoa(i) == step {
				next.node = at.fields[i].value
			}
		}
		if next.node == nil {
			return place{}
		}
		at = next
	}
	return at
}

// follow resolves the reference that may stand in place of a parameter, body, response or path item. It reports what
// cannot be resolved and returns false.
func (im *importer) follow(at place) (place, bool) {
	start := at
	for range maxHops {
		ref := at.get("$ref")
		if ref == nil {
			return at, at.is(isObject)
		}
		im.used[at.pointer] = true
		next, ok := im.find(ref.str())
		if !ok {
			im.report.add(Dropped, at.at("$ref"), badRef(ref.str()))
			return place{}, false
		}
		im.touch(next.pointer)
		at = next
	}
	im.report.add(Dropped, start.at("$ref"), "the reference leads in a circle")
	return place{}, false
}

func badRef(ref string) string {
	if strings.HasPrefix(ref, "#") {
		return "there is nothing at " + clip(ref, 200)
	}
	return "the reference leads to another document, which is not read: " + clip(ref, 200)
}

// touch notes that a component is needed: everything on the way to pointer.
func (im *importer) touch(pointer string) {
	parts := strings.SplitN(pointer, "/", 5)
	if len(parts) >= 4 && parts[1] == "components" {
		im.used[strings.Join(parts[:4], "/")] = true
	}
}
