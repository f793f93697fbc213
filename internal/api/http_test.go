package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"flowlane/test/apitest"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := regexp.MustCompile(`^[0-9a-f]{20}$`)
	keep := []string{"a", "abc-123", strings.Repeat("x", 128), "!~"}
	replace := []string{"", "two words", strings.Repeat("x", 129), "é", "tab\tbed"}
	for _, path := range []string{"/account/me", "/catalog/platforms", "/nowhere", "/account/api-keys/x"} {
		for _, id := range keep {
			if got := b.Do("GET", path, nil, "X-Request-Id", id).Header.Get("X-Request-Id"); got != id {
				t.Errorf("%s: id %q became %q", path, id, got)
			}
		}
		for _, id := range replace {
			if got := b.Do("GET", path, nil, "X-Request-Id", id).Header.Get("X-Request-Id"); !made.MatchString(got) {
				t.Errorf("%s: id %q became %q", path, id, got)
			}
		}
	}
	first := b.Do("GET", "/account/me", nil).Header.Get("X-Request-Id")
	if second := b.Do("GET", "/account/me", nil).Header.Get("X-Request-Id"); first == second {
		t.Errorf("two requests have the id %s", first)
	}
}

func TestNoSuchPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"", "/", "/nowhere", "/account", "/account/me/", "/account/me/x",
		"/flows/definitions/a/b/c", "/Account/me"} {
		b.Do("GET", path, nil).Detail(404, "Not found")
	}
	for _, path := range []string{"/account/me", "/v2/account/me", "/"} {
		res, err := b.HTTP.Get(b.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 404 || res.Header.Get("X-Request-Id") == "" ||
			!strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s without /v1: %d %v", path, res.StatusCode, res.Header)
		}
	}
}

func TestNoSuchMethod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tt := range []struct{ method, path, allow string }{
		{"POST", "/account/me", "GET"},
		{"PUT", "/account/api-keys", "GET,POST"},
		{"OPTIONS", "/account/api-keys", "GET,POST"},
		{"PATCH", "/data/record-sets/x/records", "GET,POST"},
		{"DELETE", "/catalog/actions/x", "GET"},
	} {
		got := b.Do(tt.method, tt.path, nil).Detail(405, "Method not allowed")
		if allow := strings.ReplaceAll(got.Header.Get("Allow"), " ", ""); allow != tt.allow {
			t.Errorf("%s %s: Allow %q, want %q", tt.method, tt.path, allow, tt.allow)
		}
	}
}

func TestBadIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"x", "%00", "%ff", "a%2Fb", "0192F0C1-7C3E-7A52-9D3B-5D5B0C6F1A11",
		"{0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11}", "..%2f", "%20"} {
		b.Do("DELETE", "/account/api-keys/"+id, nil).Detail(404, "API key not found")
		b.Do("GET", "/catalog/actions/"+id, nil).Detail(404, "Action not found")
		b.Do("POST", "/data/record-sets/"+id+"/records", `{"chunk_index":0,"records":[{}]}`).Detail(404,
			"Record set not found")
	}
}

func TestMediaType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/account/api-keys",
		"/data/record-sets/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11/records"} {
		for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonp", "",
			"nonsense;;"} {
			b.Do("POST", path, `{"name":"x"}`, "Content-Type", media).Detail(415,
				"Content-Type must be application/json")
		}
	}
	for _, path := range []string{"/account/api-keys",
		"/data/record-sets/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11/records"} {
		b.Do("POST", path, "\x1f\x8b\x08", "Content-Encoding", "gzip").Detail(415,
			"Content-Encoding is not supported; send the body uncompressed, without this header")
	}
	b.Do("POST", "/account/api-keys", `{"name":"x"}`, "Content-Encoding", "Identity").Want(201)
	b.Do("POST", "/account/api-keys", `{"name":"x"}`, "Content-Type", "application/json; charset=utf-8").Want(201)
	b.Do("POST", "/account/api-keys", `{"name":"x"}`, "Content-Type", "Application/JSON").Want(201)
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const limit = 1 << 20
	exact := `{"name":"x"}` + strings.Repeat(" ", limit-len(`{"name":"x"}`))
	b.Do("POST", "/account/api-keys", exact).Want(201)
	b.Do("POST", "/account/api-keys", exact+" ").Detail(413, "Request body exceeds 1048576 bytes")

	chunked, err := http.NewRequest("POST", b.URL+"/v1/account/api-keys",
		struct{ *strings.Reader }{strings.NewReader(exact + " ")})
	if err != nil {
		t.Fatal(err)
	}
	chunked.Header.Set("X-API-Key", b.Key)
	chunked.Header.Set("Content-Type", "application/json")
	chunked.ContentLength = -1
	res, err := b.HTTP.Do(chunked)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("a body of unknown length: %d", res.StatusCode)
	}
	b.As("nonsense").Do("POST", "/account/api-keys", exact+" ").Want(401)
}

func TestChunkLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const limit = 16777216
	path := "/data/record-sets/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11/records"
	body := []byte(`{"chunk_index":0,"records":[{}]}`)
	body = append(body, bytes.Repeat([]byte(" "), limit-len(body))...)
	b.Do("POST", path, body).Detail(404, "Record set not found")
	b.Do("POST", path, append(body, ' ')).Detail(413, "Request body exceeds 16777216 bytes")
	b.Do("POST", path, nil).Invalid("body missing")
}

// TestTooLarge_Unhurried: a client that looks for an answer only after it has sent everything gets one.
func TestTooLarge_Unhurried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, limit := range map[string]string{
		"/account/api-keys": "1048576",
		"/data/record-sets/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11/records": "16777216",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const length = 24 << 20 // more than lies in the buffers of a connection
		head := fmt.Sprintf("POST /v1%s HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, b.Key, length)
		if _, err := conn.Write(append([]byte(head), bytes.Repeat([]byte(" "), length)...)); err != nil {
			t.Errorf("%s: the connection was cut: %v", path, err)
			continue
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if want := `{"detail":"Request body exceeds ` + limit + ` bytes"}`; res.StatusCode != 413 ||
			apitest.Detail(string(text)) != want {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
}

// TestNoBody: where a body may be left out, a client may still say of which type it is.
func TestNoBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, media := range []string{"", "application/json", "application/x-www-form-urlencoded", "nonsense;;"} {
		b.Do("POST", "/data/record-sets", "", "Content-Type", media).Want(201)
		b.Do("POST", "/account/api-keys", "", "Content-Type", media).Invalid("body missing")
	}
}

func TestUnclearQuery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Do("GET", "/flows/batches?limit=1&limit=2&status=x", nil).Invalid("query.limit value_error", "query.status enum")
	b.Do("GET", "/flows/batches?limit=%zz", nil).Invalid("query value_error")
	b.Do("GET", "/flows/batches?limit=0&skip=%zz", nil).Invalid("query value_error", "query.limit greater_than_equal")
	b.Do("GET", "/catalog/platforms?limit=1;skip=1", nil).Invalid("query value_error")
	b.As("").Do("GET", "/flows/batches?skip=%zz", nil).Want(401)
}

func TestBadText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, body := range map[string]string{
		"cut":          `{"name":"x"`,
		"trailing":     `{"name":"x"}{}`,
		"invalid UTF8": "{\"name\":\"\xff\"}",
		"raw NUL":      "{\"name\":\"\x00\"}",
		"100 levels":   `{"name":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		"65 levels":    strings.Repeat("[", 65) + strings.Repeat("]", 65),
		"white space":  "   ",
	} {
		t.Run(name, func(t *testing.T) {
			b.Do("POST", "/account/api-keys", body).Invalid("body json_invalid")
		})
	}
	b.Do("POST", "/account/api-keys", `{"name":"\ud800"}`).Invalid("body.name value_error")
	b.Do("POST", "/account/api-keys", `{"n\u0000":[{"x":"\u0000"}]}`).
		Invalid("body.n\ufffd value_error", "body.n\ufffd.0.x value_error")
	b.Do("POST", "/account/api-keys", `{"name":`+strings.Repeat("9", 400)+`}`).Invalid("body.name string_type")
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Client = b.As("")
	type list struct {
		Items []struct {
			ID, Name   string
			ServiceID  string `json:"service_id"`
			PlatformID string `json:"platform_id"`
		}
		Total      int
		NextCursor *string `json:"next_cursor"`
	}
	get := func(path string) (out list) {
		b.Do("GET", path, nil).Want(200).Into(&out)
		return out
	}
	platforms := get("/catalog/platforms?status=active")
	if platforms.Total < 2 || len(platforms.Items) != platforms.Total {
		t.Fatalf("platforms %+v", platforms)
	}
	for _, p := range platforms.Items {
		b.Do("GET", "/catalog/platforms/"+p.ID, nil).Want(200)
		for _, s := range get("/catalog/platforms/" + p.ID + "/services").Items {
			b.Do("GET", "/catalog/services/"+s.ID, nil).Want(200)
			for _, a := range get("/catalog/services/" + s.ID + "/actions").Items {
				if got := b.Do("GET", "/catalog/actions/"+a.ID, nil).Want(200).JSON(); got["service_id"] != s.ID {
					t.Errorf("action %v", got)
				}
			}
		}
	}

	actions := get("/catalog/actions?limit=100")
	var paged []string
	for cursor := ""; ; {
		l := get("/catalog/actions?limit=2" + cursor)
		for _, a := range l.Items {
			paged = append(paged, a.ID)
		}
		if l.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *l.NextCursor
	}
	if len(paged) != actions.Total || paged[0] != actions.Items[0].ID ||
		paged[len(paged)-1] != actions.Items[actions.Total-1].ID {
		t.Errorf("paged %q, all %+v", paged, actions)
	}

	up, down := get("/catalog/services"), get("/catalog/services?sort_by=name&order=desc")
	for i := range up.Items {
		if up.Items[i].ID != down.Items[len(down.Items)-1-i].ID || i > 0 && up.Items[i].Name < up.Items[i-1].Name {
			t.Errorf("services %+v, descending %+v", up, down)
		}
	}
	if l := get("/catalog/services?limit=1"); len(l.Items) != 1 || l.Total != up.Total ||
		(l.NextCursor == nil) != (up.Total == 1) {
		t.Errorf("one service %+v", l)
	}
	if l := get("/catalog/services?skip=100000"); len(l.Items) != 0 {
		t.Errorf("far services %+v", l)
	}
	if l := get("/catalog/platforms/nowhere/services"); l.Total != 0 || l.Items == nil {
		t.Errorf("services of an unknown platform %+v", l)
	}
	b.Do("GET", "/catalog/platforms/nowhere", nil).Detail(404, "Platform not found")
	b.Do("GET", "/catalog/services/nowhere", nil).Detail(404, "Service not found")
	b.Do("GET", "/catalog/services/nowhere/actions", nil).Detail(404, "Service not found")
	b.Do("GET", "/catalog/services?limit=501&sort_by=id&order=up", nil).
		Invalid("query.limit less_than_equal", "query.order enum", "query.sort_by enum")
}
