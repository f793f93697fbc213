package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever a service does to the text in which a secret stands, it is found, and all around it stays.
func TestMask(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 7))
	text := func(alphabet string, least, most int) string {
		runes, out := []rune(alphabet), make([]rune, least+r.IntN(most-least+1))
		for i := range out {
			out[i] = runes[r.IntN(len(runes))]
		}
		return string(out)
	}
	for range 2000 {
		alphabet := []string{"abcXYZ019", "0123456789", `a"\/<&>+ %:;='~!()*`, "äß€😀z"}[r.IntN(4)]
		v := text(alphabet, shortestMasked, 90)
		before, after := text("[]-! ,", 0, 9), text("[]-! ,", 0, 9)
		m := newMask(v)
		for name, encode := range encodings {
			whole := encode(before + v + after)
			masked := []byte(whole)
			m.overwrite(masked)
			told := fmt.Sprintf("seed %d: %s of %q", seed, name, before+v+after)
			require.Len(t, masked, len(whole), told)
			require.NotContains(t, string(masked), encode(v), told)
			if !strings.HasPrefix(name, "base64") { // whose letters hang on their neighbours
				require.True(t, strings.HasPrefix(string(masked), encode(before)), told)
				require.True(t, strings.HasSuffix(string(masked), encode(after)), told)
			}
		}
	}
}

var encodings = map[string]func(string) string{
	"text": func(s string) string { return s },
	"hex":  func(s string) string { return hex.EncodeToString([]byte(s)) },
	"HEX":  func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"base64": func(s string) string {
		return base64.StdEncoding.EncodeToString([]byte(s))
	},
	"base64 of addresses": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"query":               url.QueryEscape,
	"path":                url.PathEscape,
	"component": func(s string) string {
		s = strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
		for _, c := range "!'()*" {
			s = strings.ReplaceAll(s, fmt.Sprintf("%%%02X", c), string(c))
		}
		return s
	},
	"form": func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(s), "%2A", "*"), "~", "%7E")
	},
	"quoted": func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(s), "+", "%20"), "%2F", "/")
	},
	"JSON of .NET": func(s string) string {
		text, _ := json.Marshal(s)
		out := strings.NewReplacer(`\"`, `\u0022`, "+", `\u002B`, "'", `\u0027`, "`", `\u0060`, `\u003c`, `\u003C`,
			`\u003e`, `\u003E`).Replace(inASCII(string(text[1 : len(text)-1])))
		return regexp.MustCompile(`\\u[0-9a-f]{4}`).ReplaceAllStringFunc(out, func(s string) string {
			return `\u` + strings.ToUpper(s[2:])
		})
	},
	"query in small letters": func(s string) string {
		return regexp.MustCompile("%[0-9A-F]{2}").ReplaceAllStringFunc(url.QueryEscape(s), strings.ToLower)
	},
	"JSON": func(s string) string {
		text, _ := json.Marshal(s)
		return string(text[1 : len(text)-1])
	},
	"JSON, plain": func(s string) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(s)
		return strings.TrimSuffix(b.String(), "\n")[1 : b.Len()-2]
	},
}

func TestMask_Leaves(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ secret, text, want string }{
		{"hunter", `{"a":"hunter","b":"hunte","c":"hunterhunter"}`, `{"a":"******","b":"hunte","c":"************"}`},
		{"12345678", `{"id":12345678,"n":91234567812}`, `{"id":99999999,"n":99999999912}`},
		{"short", `short`, `short`},
		{"", `anything`, `anything`},
		{"aaaaaa", `aaaaaaaaaaaaa`, `************a`},
	} {
		got := []byte(tc.text)
		newMask(tc.secret).overwrite(got)
		assert.Equal(t, tc.want, string(got))
	}
	var none *mask
	none.overwrite([]byte("x"))
	none.answer(&Answer{Body: []byte("x")})
	escaped := []byte(`<a>` + "p&lt;ssw&gt;rd" + `</a>`)
	newMask("p<ssw>rd").overwrite(escaped)
	assert.NoError(t, xml.Unmarshal(escaped, new(string)))
	assert.NotContains(t, string(escaped), "ssw")
}

// A service that sends back what it was sent, in its headers and its body, shows nothing of what authenticated the
// call.
func TestSend_Echo(t *testing.T) {
	t.Parallel()
	const canary, token = `kAnary"/+<0123456789>`, "kAnaryOfAToken"
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			_, _ = io.WriteString(w, `{"access_token":"`+token+`","token_type":"bearer"}`)
			return
		}
		request, _ := httputil.DumpRequest(r, true)
		for name, values := range r.Header {
			w.Header()["X-Echo-"+name] = values
		}
		w.Header().Set("Location", "/again?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"request": string(request), "query": r.URL.Query(),
			"packed": request})
		_, _ = io.WriteString(w, hex.EncodeToString(request))
	}))
	t.Cleanup(echo.Close)
	sender := newTestSender(t, hostOf(echo.URL))
	svc, act := action(t, testCatalog(t), "core__http__request")
	spec := func(method string, fields map[string]string) Spec {
		return Spec{Method: method, Fields: fields, Origins: []string{echo.URL}}
	}
	header := spec("api_key", map[string]string{"api_key": canary})
	query := header
	header.Placement, query.Placement = Placement{HeaderName: "X-Key", Scheme: "Key"}, Placement{QueryParam: "key"}
	client := spec("oauth2", map[string]string{"client_id": "me", "client_secret": canary})
	client.TokenURL = echo.URL + "/token"
	signing := spec("aws_access_key", map[string]string{"access_key_id": "me", "secret_access_key": canary,
		"session_token": token})
	signing.Service = "sqs"
	for name, tc := range map[string]struct {
		spec Spec
		// sent is what a call has of the secret.
		sent string
	}{
		"basic": {
			spec("basic_auth", map[string]string{"username": "me", "password": canary}),
			base64.StdEncoding.EncodeToString([]byte("me:" + canary)),
		},
		"header": {header, canary},
		"query":  {query, url.QueryEscape(canary)},
		"oauth2": {client, token},
		"jwt": {
			spec("jwt", map[string]string{"algorithm": "HS256", "key": strings.Repeat("kAnary", 8), "issuer": "me"}),
			"",
		},
		"aws": {signing, token},
	} {
		t.Run(name, func(t *testing.T) {
			secret, err := NewSecret(tc.spec)
			require.NoError(t, err)
			params := json.RawMessage(fmt.Sprintf(`{"method":"GET","url":"%s/x?a=b"}`, echo.URL))
			r, err := Prepare(svc, act, params, nil, secret, "")
			require.NoError(t, err)
			ans := sender.Send(t.Context(), soon(r))
			require.NoError(t, ans.Err)
			shown := string(ans.Body) + fmt.Sprint(ans.Header)
			assert.Contains(t, shown, "a=b", "what is no secret stays")
			assert.Contains(t, shown, "****")
			for _, v := range []string{canary, token, tc.sent} {
				for how, encode := range encodings {
					if v != "" {
						assert.NotContains(t, shown, encode(v), "%s in %s", v, how)
					}
				}
			}
			assert.NotRegexp(t, `eyJ[\w-]{8}|Signature=[0-9a-f]{8}`, shown)
		})
	}
}

// BenchmarkMask is what it takes to look through an answer that shows nothing.
func BenchmarkMask(b *testing.B) {
	const password = "p4ssw0rd-of-32-letters-and-digits"
	m := newMask(password, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
	body := bytes.Repeat([]byte(`{"key":"0af76519-16cd-43dd-8448-eb211c80319c","status":"accepted"},`), 15_000)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		m.overwrite(body)
	}
}
