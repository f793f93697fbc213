package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// keyedReceiver is a receiver as Stripe is one: it does what it is asked once for each key, and answers a key that it
// knows as it did before, with its refusals too.
type keyedReceiver struct {
	mu sync.Mutex
	// refuse and cut are the paths that it refuses, and those whose connections it cuts after it has done what they
	// ask.
	refuse, cut map[string]bool
	// conflict are the paths at which it answers 409 to a key that it knows, and does nothing.
	conflict map[string]bool
	// keys are those that came to a path, each once; done is how often it did what the path asks, and refused which
	// keys it refused.
	keys    map[string][]string
	done    map[string]int
	refused map[string]bool
	url     string
}

func (k *keyedReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, path := r.Header.Get("Idempotency-Key"), r.URL.Path
	if k.conflict[path] && slices.Contains(k.keys[path], key) {
		w.WriteHeader(http.StatusConflict)
		return
	}
	if !slices.Contains(k.keys[path], key) {
		k.keys[path] = append(k.keys[path], key)
		if k.refused[key] = k.refuse[path]; !k.refused[key] {
			k.done[path]++
		}
	}
	if k.cut[path] {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if k.refused[key] {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	_, _ = fmt.Fprint(w, `{}`)
}

// behave says which paths it refuses and cuts from now on.
func (k *keyedReceiver) behave(refuse, cut []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse, k.cut, k.conflict = map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, path := range refuse {
		k.refuse[path] = true
	}
	for _, path := range cut {
		k.cut[path] = true
	}
}

// forget has it forget the keys that came to a path.
func (k *keyedReceiver) forget(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, path)
}

// seen returns how many keys came to a path, and how often it was done.
func (k *keyedReceiver) seen(path string) [2]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return [2]int{len(k.keys[path]), k.done[path]}
}

func serveKeyed(t *testing.T) (*stack, *keyedReceiver) {
	t.Helper()
	k := &keyedReceiver{keys: map[string][]string{}, done: map[string]int{}, refused: map[string]bool{}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	s := serveStack(t, true, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(server.URL, "http://"))
	})
	k.url = server.URL
	return s, k
}

// post is a task that posts to a path of the receiver, in so many attempts.
func (k *keyedReceiver) post(id, path string, attempts int, more string) string {
	return fmt.Sprintf(`{"id":%q,"action_id":"core__http__request","retry":{"max_attempts":%d,"initial_seconds":1},
		"params":{"method":"POST","url":"%s/%s","idempotency_header":"Idempotency-Key"}%s}`, id, attempts, k.url, path,
		more)
}

// TestRetry_Keys: a record whose call may have arrived comes again under the same idempotency key, over all retries, so
// that it arrives once; one that was refused comes under a new key, because its receiver repeats what it said before.
func TestRetry_Keys(t *testing.T) {
	t.Parallel()
	s, k := serveKeyed(t)
	k.behave([]string{"/refused", "/both"}, []string{"/cut"})
	batch := s.trigger(s.define(`[{"id":"before","tasks":[`+k.post("first", "before-{{ input.to }}", 1, "")+`]},
		{"id":"s","tasks":[`+k.post("t", "{{ input.to }}", 2, "")+`]}]`),
		`{"records":[{"to":"fine"},{"to":"cut"},{"to":"cut2"},{"to":"refused"},{"to":"both"}]}`)
	require.Equal(t, map[string]int{"completed": 2, "failed": 3}, counted(s.await(batch)))
	assert.Equal(t, [2]int{1, 1}, k.seen("/cut"), "both attempts")

	k.behave([]string{"/refused"}, []string{"/cut", "/both"})
	_, second := s.retry(batch, "")
	require.Equal(t, map[string]int{"failed": 3}, counted(s.await(second)))
	assert.Equal(t, [2]int{1, 1}, k.seen("/cut"), "the first retry")
	assert.Equal(t, [2]int{2, 0}, k.seen("/refused"), "a key for each batch")
	assert.Equal(t, [2]int{2, 1}, k.seen("/both"), "refused, and then done")

	k.behave(nil, nil)
	_, third := s.retry(batch, "") // goes on where the second left it
	require.Equal(t, map[string]int{"completed": 3}, counted(s.await(third)))
	for path, want := range map[string][2]int{
		"/cut": {1, 1}, "/refused": {3, 1}, "/both": {2, 1}, "/fine": {1, 1}, "/before-cut": {1, 1},
	} {
		assert.Equal(t, want, k.seen(path), path)
	}
}

// TestRetry_KeysOfConflict: who is told that its kept key is known learns nothing of the first call, and keeps it
// further.
func TestRetry_KeysOfConflict(t *testing.T) {
	t.Parallel()
	s, k := serveKeyed(t)
	k.behave(nil, []string{"/cut"})
	batch := s.trigger(s.define(`[{"id":"s","tasks":[`+k.post("t", "cut", 1, "")+`]}]`), `{"input_data":{}}`)
	require.Equal(t, map[string]int{"failed": 1}, counted(s.await(batch)))
	k.behave(nil, nil)
	k.conflict["/cut"] = true
	_, second := s.retry(batch, "")
	require.Equal(t, map[string]int{"failed": 1}, counted(s.await(second)))
	k.behave(nil, nil)
	_, third := s.retry(batch, "")
	require.Equal(t, map[string]int{"completed": 1}, counted(s.await(third)))
	assert.Equal(t, [2]int{1, 1}, k.seen("/cut"), "it came once")
}

// TestRetry_KeysOfRefusal: a call that may have arrived, and whose next attempt was refused, was not done: it gets a
// new key.
func TestRetry_KeysOfRefusal(t *testing.T) {
	t.Parallel()
	s, k := serveKeyed(t)
	k.behave([]string{"/turns"}, []string{"/turns"})
	batch := s.trigger(s.define(`[{"id":"s","tasks":[`+k.post("t", "turns", 2, "")+`]}]`), `{"input_data":{}}`)
	s.until(batch, func(map[string]any) bool { return k.seen("/turns") == [2]int{1, 0} })
	k.behave([]string{"/turns"}, nil)
	require.Equal(t, map[string]int{"failed": 1}, counted(s.await(batch)))
	k.behave(nil, nil)
	_, again := s.retry(batch, "")
	require.Equal(t, map[string]int{"completed": 1}, counted(s.await(again)))
	assert.Equal(t, [2]int{2, 1}, k.seen("/turns"))
}

// TestRetry_KeysOfStep: of tasks of one step the one that may have arrived keeps its key, whatever became of the
// others.
func TestRetry_KeysOfStep(t *testing.T) {
	t.Parallel()
	s, k := serveKeyed(t)
	k.behave([]string{"/refused"}, []string{"/cut"})
	batch := s.trigger(s.define(`[{"id":"s","tasks":[`+k.post("a", "cut", 1, "")+`,`+k.post("b", "refused", 1, "")+
		`,`+k.post("c", "fine", 1, "")+`]}]`), `{"input_data":{}}`)
	require.Equal(t, map[string]int{"failed": 1}, counted(s.await(batch)))
	k.behave(nil, nil)
	_, again := s.retry(batch, "")
	require.Equal(t, map[string]int{"completed": 1}, counted(s.await(again)))
	assert.Equal(t, [][2]int{{1, 1}, {2, 1}, {1, 1}}, [][2]int{k.seen("/cut"), k.seen("/refused"), k.seen("/fine")})
}

// TestRetry_KeysOfWaiting: a call may have arrived whose next attempt never came.
func TestRetry_KeysOfWaiting(t *testing.T) {
	t.Parallel()
	s, k := serveKeyed(t)
	k.behave(nil, []string{"/cut"})
	batch := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",
		"retry":{"max_attempts":2,"initial_seconds":3600},
		"params":{"method":"POST","url":"`+k.url+`/cut","idempotency_header":"Idempotency-Key"}}]}]`),
		`{"input_data":{}}`)
	s.until(batch, func(map[string]any) bool {
		// A call is listed once what came of it is known; until then its record counts as queued, too.
		return len(s.pages("/flows/calls?batch_id="+batch, 10)) == 1 &&
			counted(s.get("/flows/batches/" + batch))["queued"] == 1
	})
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	_, second := s.retry(batch, "") // is never sent, and knows of it all the same
	s.Do(http.MethodPost, "/flows/batches/"+second+"/cancel", nil).Want(http.StatusOK)
	k.behave(nil, nil)
	_, third := s.retry(batch, "")
	require.Equal(t, map[string]int{"completed": 1}, counted(s.await(third)))
	assert.Equal(t, [2]int{1, 1}, k.seen("/cut"))
}

// TestRetry_KeysOfElements: the elements of a for_each begin anew together, and those that were done are not done
// twice.
func TestRetry_KeysOfElements(t *testing.T) {
	t.Parallel()
	s, k := serveKeyed(t)
	k.behave([]string{"/3"}, nil)
	batch := s.trigger(s.define(`[{"id":"s","tasks":[`+
		k.post("t", "{{ item }}", 1, `,"for_each":"{{ [1, 2, 3, 4] }}"`)+`]}]`), `{"input_data":{}}`)
	require.Equal(t, map[string]int{"failed": 1}, counted(s.await(batch)))
	k.behave(nil, nil)
	k.forget("/3")
	_, again := s.retry(batch, "")
	require.Equal(t, map[string]int{"completed": 1}, counted(s.await(again)))
	for _, path := range []string{"/1", "/2", "/3", "/4"} {
		assert.Equal(t, 1, k.seen(path)[1], path)
	}
}
