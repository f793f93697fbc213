package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// adapter stands between Specmatic and the service. It puts real values where stand-ins are, made for each request
// where the operation uses them up, and counts what it sees. Otherwise requests and answers pass as they are.
type adapter struct {
	url    string
	doc    *document
	world  *world
	server *http.Server
	next   *httputil.ReverseProxy

	mu   sync.Mutex
	seen map[string]*tally
	errs []error
}

// tally counts the requests of one operation.
type tally struct{ good, bad, faults int }

// Headers: wanted is Specmatic's own header: the status that it expects, 400 for a bad request.
const (
	wanted         = "Specmatic-Response-Code"
	idempotencyKey = "Idempotency-Key"
)

// good tells whether Specmatic takes a request for one that succeeds.
func good(r *http.Request) bool { return strings.HasPrefix(r.Header.Get(wanted), "2") }

func newAdapter(ctx context.Context, doc *document, w *world) (*adapter, error) {
	target, err := url.Parse(w.service.url)
	if err != nil {
		return nil, err
	}
	a := &adapter{doc: doc, world: w, seen: map[string]*tally{}}
	for _, op := range doc.operations {
		a.seen[op.id] = &tally{}
	}
	a.next = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a.url = "http://" + listener.Addr().String() + prefix
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = a.server.Serve(listener) }()
	return a, nil
}

func (a *adapter) close() { _ = a.server.Close() }

func (a *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.join(r)
	op := a.find(r)
	if op == nil {
		a.next.ServeHTTP(w, r)
		return
	}
	if err := a.fill(r, op); err != nil {
		a.note(fmt.Errorf("fixture of %s: %w", op.id, err))
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	recorded := &recorder{ResponseWriter: w, keep: cleanups[op.id].path != ""}
	a.next.ServeHTTP(recorded, r)
	a.count(op, good(r), recorded.status)
	if recorded.keep {
		if err := a.cleanUp(r.Context(), op, recorded); err != nil {
			a.note(fmt.Errorf("after %s: %w", op.id, err))
		}
		recorded.give()
	}
}

// cleanUp undoes what an operation did, where that would be in the way of the next test.
func (a *adapter) cleanUp(ctx context.Context, op *operation, made *recorder) error {
	if made.status >= http.StatusMultipleChoices {
		return nil
	}
	var answer map[string]any
	if err := json.Unmarshal(made.body.Bytes(), &answer); err != nil {
		return err
	}
	c := cleanups[op.id]
	if c.field != "" {
		c.path += fmt.Sprint(answer[c.field])
	}
	return a.world.service.call(ctx, c.method, c.path, nil, nil)
}

// recorder notes the status of an answer. If it is to keep it, it holds it back until give.
type recorder struct {
	http.ResponseWriter

	status int
	keep   bool
	body   bytes.Buffer
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	if !r.keep {
		r.ResponseWriter.WriteHeader(status)
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.keep {
		return r.body.Write(p)
	}
	return r.ResponseWriter.Write(p)
}

// give passes on what was held back.
func (r *recorder) give() {
	r.ResponseWriter.WriteHeader(r.status)
	_, _ = r.ResponseWriter.Write(r.body.Bytes()) // who asked has gone
}

// FlushError lets streams through.
func (r *recorder) FlushError() error {
	if r.keep {
		return nil
	}
	return http.NewResponseController(r.ResponseWriter).Flush()
}

func (a *adapter) count(op *operation, good bool, got int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.seen[op.id]
	if good {
		t.good++
	} else {
		t.bad++
	}
	if got >= http.StatusInternalServerError {
		t.faults++
	}
}

func (a *adapter) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs = append(a.errs, err)
}

// join takes back that an operation is tested in parts.
func (a *adapter) join(r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), prefix+"/as/")
	if !ok {
		return
	}
	number, path, _ := strings.Cut(rest, "/")
	r.URL.RawPath = prefix + "/" + path
	r.URL.Path, _ = url.PathUnescape(r.URL.RawPath) // it was parsed before
	i, err := strconv.Atoi(number)
	if err != nil || i >= len(a.doc.parts) || a.doc.parts[i].parameter == "" {
		return
	}
	query := r.URL.Query()
	if !query.Has(a.doc.parts[i].parameter) {
		query.Set(a.doc.parts[i].parameter, a.doc.parts[i].value)
		r.URL.RawQuery = query.Encode()
	}
}

// find returns the operation of a request; the path with fewer parameters wins.
func (a *adapter) find(r *http.Request) (found *operation) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), prefix)
	given := strings.Split(path, "/")[1:]
	for _, op := range a.doc.operations {
		if strings.EqualFold(op.method, r.Method) && op.matches(given) &&
			(found == nil || strings.Count(op.path, "{") < strings.Count(found.path, "{")) {
			found = op
		}
	}
	return found
}

func (op *operation) matches(given []string) bool {
	return slices.EqualFunc(op.segments, given, func(want, got string) bool {
		return strings.HasPrefix(want, "{") ||
			want == got
	})
}

// fill puts values where stand-ins are.
func (a *adapter) fill(r *http.Request, op *operation) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	besideKey(r, op)
	path := r.URL.EscapedPath()
	if strings.Contains(path+r.URL.RawQuery+string(body), standIn) {
		values := values{}
		if prepare := fixtures[op.id]; prepare != nil {
			if values, err = prepare(r.Context(), a.world); err != nil {
				return err
			}
		}
		// The longest first: one name may begin like another.
		names := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return len(b) - len(a) })
		for _, name := range names {
			value := values[name]
			path = strings.ReplaceAll(path, standIn+name, url.PathEscape(value))
			r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, standIn+name, url.QueryEscape(value))
			for key := range r.Header {
				r.Header.Set(key, strings.ReplaceAll(r.Header.Get(key), standIn+name, value))
			}
			body = bytes.ReplaceAll(body, []byte(standIn+name), []byte(value))
		}
		if r.URL.Path, err = url.PathUnescape(path); err != nil {
			return err
		}
		r.URL.RawPath = path
		if err := a.cursor(r); err != nil {
			return err
		}
	}
	if good(r) {
		body = distinct(body)
	}
	// A key belongs to one request, and short ones would come twice.
	if r.Header.Get(idempotencyKey) != "" && good(r) {
		r.Header.Set(idempotencyKey, unique())
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// distinct gives the items of lists in a body names of their own, where two have the same: that ids and names are
// unique is more than a schema says, and short ones come twice.
func distinct(body []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil || !rename(tree, map[string]bool{}) {
		return body
	}
	out, err := json.Marshal(tree)
	if err != nil {
		return body
	}
	return out
}

// rename tells whether it changed anything.
func rename(node any, taken map[string]bool) (changed bool) {
	switch v := node.(type) {
	case map[string]any:
		for key, child := range v {
			if key != "job_statuses" && key != "scopes" { // these are no names
				changed = rename(child, taken) || changed
			}
		}
	case []any:
		texts := map[string]bool{}
		for i, item := range v {
			if text, ok := item.(string); ok && texts[text] {
				v[i], changed = "a"+unique(), true
			} else if ok {
				texts[text] = true
			}
			for _, key := range []string{"id", "name"} {
				name, ok := object(item)[key].(string)
				if ok && taken[key+name] {
					object(item)[key], changed = "a"+unique(), true
				}
				taken[key+name] = true
			}
			changed = rename(item, taken) || changed
		}
	}
	return changed
}

// besideKey lets a list that looks for a key go without skip, and of jobs be of a batch.
func besideKey(r *http.Request, op *operation) {
	query := r.URL.Query()
	if !query.Has("key") || !good(r) {
		return
	}
	query.Del("skip")
	if op.id == "listJobs" && !query.Has("batch_id") {
		query.Set("batch_id", "none")
	}
	r.URL.RawQuery = query.Encode()
}

// cursor replaces the stand-in of a cursor by one of the same list with the same filters; where there is no second
// page, or the rest of the request is bad, it is left out. A cursor goes without skip.
func (a *adapter) cursor(r *http.Request) error {
	query := r.URL.Query()
	if query.Get("cursor") != standIn+"cursor" {
		return nil
	}
	query.Del("cursor")
	first, ok := url.Values{}, true
	for name := range query {
		first[name] = query[name]
	}
	first.Set("limit", "1")
	first.Del("format") // a cursor leads on in all of them
	if skip := query.Get("skip"); skip != "" {
		if _, err := strconv.Atoi(skip); err == nil {
			first.Del("skip")
		} else {
			ok = false
		}
	}
	var page struct {
		Next *string `json:"next_cursor"`
	}
	if ok && good(r) {
		if err := a.world.service.call(r.Context(), http.MethodGet, strings.TrimPrefix(r.URL.EscapedPath(), prefix)+"?"+
			first.Encode(), nil, &page); err != nil {
			return err
		}
	}
	if page.Next != nil {
		query.Set("cursor", *page.Next)
		query.Del("skip")
	}
	r.URL.RawQuery = query.Encode()
	return nil
}
