package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// redirectProgram makes something at each way of a server that leads elsewhere, and then what browsers, which hide
// where, do with a write and a read.
const redirectProgram = asModule + `
const said = (error) => error.name + ' ' + error.message;
const seen = {};
for (const way of JSON.parse(process.env.WAYS)) {
  const client = new flow.Flowlane({ url: process.env.HERE + '/' + way, apiKey: 'k', backoff: 1 });
  seen[way] = await client.records.create({ body: { chunk_size: 7 } }).then((set) => set.id, said);
}
const modes = [];
const hiding = async (request) => {
  modes.push(request.method + ' ' + request.redirect);
  if (request.redirect === 'follow') return fetch(request);
  const opaque = { type: { value: 'opaqueredirect' }, ok: { value: false }, status: { value: 0 } };
  return Object.defineProperties(new Response(null), opaque);
};
const client = new flow.Flowlane({ url: process.env.HERE + '/307', apiKey: 'k', fetch: hiding });
seen.write = await client.records.create({}).then((set) => set.id, said);
seen.read = await client.account.getMe().then((me) => me.id, said);
seen.modes = modes;
process.stdout.write(JSON.stringify(seen));
`

// TestSDK_TypeScript_Redirects: a request is sent on as it is, with its key, within a host and to where an organization
// has moved. Nothing else is followed, and the error says where it leads.
func TestSDK_TypeScript_Redirects(t *testing.T) {
	t.Parallel()
	dir := project(t)
	var mu sync.Mutex
	arrived := map[string]string{}
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		arrived[r.URL.Path] += fmt.Sprint(r.Method, " ", r.Header.Get("X-API-Key"), " ",
			r.Header.Get("Idempotency-Key") != "", " ", string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"made"}`)
	}))
	t.Cleanup(there.Close)
	elsewhere := strings.Replace(there.URL, "127.0.0.1", "localhost", 1)
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		way := strings.Split(r.URL.Path, "/")[1]
		_, _ = fmt.Sscan(way, &status)
		switch {
		case way == "308circle":
			w.Header().Set("Location", r.URL.Path)
		case way == "307nowhere":
		case strings.HasSuffix(way, "login"):
			w.Header().Set("Location", elsewhere+"/login"+r.URL.Path)
		case len(way) > 3:
			w.Header().Set("Location", elsewhere+r.URL.Path)
		default:
			w.Header().Set("Location", there.URL+r.URL.Path)
		}
		w.WriteHeader(status)
		if strings.Contains(way, "moved") {
			_, _ = io.WriteString(w, `{"detail":"The organization is elsewhere","code":"moved"}`)
		}
	}))
	t.Cleanup(here.Close)
	write(t, dir, "redirect.mjs", redirectProgram)
	env := []string{"HERE=" + here.URL,
		`WAYS=["301","302","303","307","308","307moved","307other","308moved","307movedlogin","308circle","307nowhere"]`}
	out := strings.NewReplacer(there.URL, "THERE", elsewhere, "ELSEWHERE", here.URL, "HERE").
		Replace(string(node(t, env, filepath.Join(dir, "redirect.mjs"))))
	const refused = ", which is not followed: if that is the service, give it as the client's url"
	const nowhere = ": the answer leads elsewhere, and does not say where: check the url of the client"
	assert.JSONEq(t, `{
		"301": "ApiError 301: the answer leads to THERE/301`+refused+`",
		"302": "ApiError 302: the answer leads to THERE/302`+refused+`",
		"303": "ApiError 303: the answer leads to THERE/303`+refused+`",
		"307": "made", "308": "made", "307moved": "made",
		"307other": "ApiError 307: the answer leads to ELSEWHERE/307other`+refused+`",
		"308moved": "ApiError 308: the answer leads to ELSEWHERE/308moved`+refused+`",
		"307movedlogin": "ApiError 307: the answer leads to ELSEWHERE/login/307movedlogin`+refused+`",
		"308circle": "ApiError 308: the answer leads to HERE/308circle`+refused+`",
		"307nowhere": "ApiError 307`+nowhere+`",
		"write": "ApiError 0`+nowhere+`", "read": "made", "modes": ["POST manual", "GET manual", "GET follow"]
	}`, out)
	const made = `POST k true {"chunk_size":7}`
	assert.Equal(t, map[string]string{
		"/307/v1/data/record-sets": made, "/308/v1/data/record-sets": made, "/307moved/v1/data/record-sets": made,
		"/307/v1/account/me": "GET k false ",
	}, arrived)
}
