package platformsim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/platformsim"
	"flowlane/test/servers"
)

// bench is one simulated platform, with its entry in a catalog that leads to it; with the document of its vendor by way
// of Prism, which passes on what that allows.
type bench struct {
	t        *testing.T
	cat      *catalog.Catalog
	platform string
	sim      *platformsim.Sim
	url      string
	// front is where calls go: Prism, else the simulator.
	front  string
	sender *provider.Sender
	// canned answers instead of the simulator where it is set.
	canned http.HandlerFunc
	// fields are those of the credential that must look in a certain way.
	fields map[string]string
	// denied is what Prism found wrong with the request of the last call.
	denied string
	// last is what the platform called the call before: its reference, or the first text of its output.
	last string
}

// play plays a platform that ships; file is the document of its vendor, empty for none.
func play(t *testing.T, platformID, file string) *bench {
	t.Helper()
	return playOf(t, catalog.Options{}, platformID, file)
}

func playOf(t *testing.T, o catalog.Options, platformID, file string) *bench {
	t.Helper()
	b := &bench{t: t, platform: platformID}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.canned != nil && b.url+r.URL.Path != b.tokenURL() {
			b.canned(w, r)
			return
		}
		b.sim.ServeHTTP(w, r)
	}))
	b.url = server.URL
	b.front = server.URL
	cat, err := catalog.Load(o)
	require.NoError(t, err)
	var document []byte
	if file != "" {
		document, err = os.ReadFile(file)
		require.NoError(t, err)
	}
	b.sim, err = platformsim.New(cat, platformID, platformsim.Options{Document: document})
	require.NoError(t, err)
	if file != "" {
		b.front = "http://" + servers.Prism(t, []string{file}, server.URL, operationsOf(cat, b.sim.BaseURL(""),
			platformID)...)
	}
	b.sender = provider.NewSender(provider.Options{AllowHosts: []string{strings.TrimPrefix(b.front, "http://")}})
	t.Cleanup(b.sender.Close)
	o.BaseURLs = map[string]string{platformID: b.sim.BaseURL(b.front)}
	b.cat, err = catalog.Load(o)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	t.Cleanup(b.sim.Close)
	return b
}

var expression = regexp.MustCompile(`{{.*?}}`)

// operationsOf are what the actions of a platform call, as Prism finds it in a document.
func operationsOf(cat *catalog.Catalog, base, platformID string) []string {
	var out []string
	for _, s := range cat.Services(platformID) {
		for _, a := range s.Actions {
			path, _, _ := strings.Cut(expression.ReplaceAllString(a.Call.Path, "{}"), "?")
			out = append(out, a.Call.Method+" "+base+path)
		}
	}
	return out
}

// control asks the control of the simulator.
func (b *bench) control(method, path, body string, status int) string {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+"/_control/"+path, strings.NewReader(body))
	require.NoError(b.t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	require.Equal(b.t, status, res.StatusCode, "%s", text)
	return string(text)
}

// secret is one that the service takes.
func (b *bench) secret(svc *catalog.Service, word string) provider.Secret {
	b.t.Helper()
	fields := map[string]string{}
	for _, f := range svc.CredentialFields {
		if fields[f.Name] = word; !f.Secret {
			fields[f.Name] = "acme"
		}
	}
	maps.Copy(fields, b.fields)
	for name, text := range fields {
		fields[name] = strings.ReplaceAll(text, "WORD", word)
	}
	spec := provider.Spec{Method: svc.AuthMethod, PlatformID: svc.PlatformID, Fields: fields, Origins: []string{b.front,
		b.url}, SignIn: svc.SignIn}
	spec.Grant, spec.TokenURL = svc.SignIn.Grant, svc.SignIn.TokenURL
	if spec.Placement = (provider.Placement{HeaderName: svc.SignIn.Header,
		Scheme: svc.SignIn.Scheme}); !svc.SignIn.Placed() {
		spec.Placement.HeaderName = "Authorization"
	}
	s, err := provider.NewSecret(spec)
	require.NoError(b.t, err)
	return s
}

// tokenURL is where tokens of the platform are had; empty where it has none.
func (b *bench) tokenURL() string { return b.cat.Services(b.platform)[0].SignIn.TokenURL }

// call makes the request of an action, sends it, and reads the answer.
func (b *bench) call(actionID, params string, rows []string, key, word string) provider.Reading {
	b.t.Helper()
	act, ok := b.cat.Action(actionID)
	require.True(b.t, ok, "there is no action %s", actionID)
	svc, _ := b.cat.Service(act.ServiceID)
	require.Empty(b.t, act.RenderCheck([]byte(params)), "literal params need no check")
	var body []byte
	if rows != nil {
		body = []byte("[" + strings.Join(rows, ",") + "]")
	}
	r, err := provider.Prepare(svc, act, json.RawMessage(params), body, b.secret(svc, word), key)
	require.NoError(b.t, err)
	answer := b.sender.Send(b.t.Context(), r)
	if b.denied = ""; strings.Contains(string(answer.Body), "prism/errors") {
		b.denied = string(answer.Body)
	}
	out := provider.Read(act, answer, len(rows))
	b.last = out.Reference
	gjson.ParseBytes(out.Output).ForEach(func(_, v gjson.Result) bool {
		if b.last == "" && v.Type == gjson.String {
			b.last = v.String()
		}
		return b.last == ""
	})
	return out
}

// told sums a reading up.
func told(r provider.Reading) string {
	out := string(r.Kind)
	if r.Code != "" {
		out += " " + r.Code
	}
	for _, row := range r.Rows {
		said := row.Code
		if row.Kind != provider.RowRejected {
			said = string(row.Kind)
		}
		out += fmt.Sprintf(" row %d %s", row.Row, said)
	}
	if r.Kind == provider.RetryLater {
		out += fmt.Sprintf(" %s", r.RetryAfter)
	}
	return out
}

// honest fails the test where the simulator made a mistake of its own, or answered what its vendor does not document.
func (b *bench) honest() {
	b.t.Helper()
	totals := b.sim.Totals()
	assert.Empty(b.t, totals.Mistakes, "templates of the profile")
	assert.Empty(b.t, totals.Undocumented, "answers that the vendor does not document")
}
