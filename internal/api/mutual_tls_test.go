package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// tlsServer takes only clients whose certificate the authority of its arguments has signed. It says who the client of a
// connection is, and which request of that connection came; and it gives tokens, bound to the client that asks.
const tlsServer = `
const [cert, key, ca] = process.argv.slice(1)
const nth = new WeakMap()
const server = require("https").createServer({ cert, key, ca, requestCert: true, rejectUnauthorized: true }, (req, res) => {
  const who = req.socket.getPeerCertificate().subject.CN
  nth.set(req.socket, (nth.get(req.socket) || 0) + 1)
  res.setHeader("Content-Type", "application/json")
  if (req.url === "/token") return res.end(JSON.stringify({ access_token: "token-of-" + who, token_type: "Bearer" }))
  res.end(JSON.stringify({ who, nth: nth.get(req.socket), authorization: req.headers.authorization || "" }))
})
server.listen(0, "127.0.0.1", () => console.log(server.address().port))`

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.pem, _ = a.sign("authority", time.Now().Add(time.Hour), true)
	return a
}

// sign returns a certificate of a name, and its key, in PEM.
func (a *authority) sign(name string, until time.Time, isCA bool) (certificate, key string) {
	a.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
	}
	parent, signer := a.cert, a.key
	if isCA {
		template.IsCA, template.KeyUsage, parent, signer = true, x509.KeyUsageCertSign, template, own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, signer)
	require.NoError(a.t, err)
	if isCA {
		a.key = own
		a.cert, err = x509.ParseCertificate(der)
		require.NoError(a.t, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(a.t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

type tlsBundle struct {
	*stack
	trusted *authority
	at      string
}

func setupTLS(t *testing.T) *tlsBundle {
	t.Helper()
	b := &tlsBundle{trusted: newAuthority(t)}
	cert, key := b.trusted.sign("server", time.Now().Add(time.Hour), false)
	host := "127.0.0.1:" + servers.Start(t, tlsServer, cert, key, b.trusted.pem)
	b.at = "https://" + host
	b.stack = serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, host) })
	return b
}

// client is the body of a credential of a client.
func (b *tlsBundle) client(name string, pairs ...any) object {
	b.t.Helper()
	cert, key := b.trusted.sign(name, time.Now().Add(time.Hour), false)
	return object{
		"name": name, "platform_id": "core", "auth_method": "mutual_tls", "allowed_origins": []string{b.at},
		"credentials": with(object{"client_certificate": cert, "client_key": key, "server_ca": b.trusted.pem},
			pairs...),
	}
}

// call makes calls with a credential, and returns the jobs.
func (b *tlsBundle) call(of *stack, credential, method string, times int) (jobs []object) {
	b.t.Helper()
	of.credential = credential
	flow := of.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"CRED","retry":{"max_attempts":1},
		"params":{"url":"` + b.at + `/x","method":"` + method + `"}}]}]`)
	batch := of.trigger(flow, `{"records":[`+strings.TrimSuffix(strings.Repeat("{},", times), ",")+`]}`)
	of.await(batch)
	for _, job := range of.get("/flows/jobs?batch_id=" + batch)["items"].([]any) {
		jobs = append(jobs, of.get("/flows/jobs/"+job.(object)["id"].(string)))
	}
	return jobs
}

// TestMutualTLS: a server that knows clients by their certificates takes a credential's, for calls and for tokens;
// connections of one credential never carry the calls of another, be it of the same organization or not.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	b := setupTLS(t)
	other := *b.stack
	other.Client = b.other
	ann, bob, eve := b.made("/credentials", b.client("ann")), b.made("/credentials", b.client("bob")),
		other.made("/credentials", b.client("eve"))
	reused := 0.0
	for range 2 {
		for _, tc := range []struct {
			of               *stack
			name, credential string
		}{{b.stack, "ann", ann}, {b.stack, "bob", bob}, {&other, "eve", eve}} {
			for _, job := range b.call(tc.of, tc.credential, "POST", 3) {
				require.Equal(t, "completed", job["status"], job["error"])
				body := job["output"].(object)["body"].(object)
				assert.Equal(t, tc.name, body["who"])
				reused = max(reused, body["nth"].(float64))
			}
		}
	}
	assert.Greater(t, reused, 1.0, "connections are kept, so that they could be mixed up")

	tokens := with(b.client("app", "client_id", "app", "client_secret", needle), "auth_method", "oauth2", "token_url",
		b.at+"/token")
	body := b.call(b.stack, b.made("/credentials", tokens), "POST", 1)[0]["output"].(object)["body"].(object)
	assert.Equal(t, []any{"app", "Bearer ************"}, []any{body["who"], body["authorization"]})

	// After a rotation nothing goes over the connections of the certificate that was replaced.
	b.Do(http.MethodPut, "/credentials/"+ann, b.client("ann-2")).Want(http.StatusOK)
	for _, job := range b.call(b.stack, ann, "POST", 2) {
		assert.Equal(t, "ann-2", job["output"].(object)["body"].(object)["who"], job)
	}
}

// TestMutualTLS_Refused: what cannot work is told when it is stored, and what a server refuses was not done.
func TestMutualTLS_Refused(t *testing.T) {
	t.Parallel()
	b := setupTLS(t)
	good := b.client("ann")
	_, another := b.trusted.sign("bob", time.Now().Add(time.Hour), false)
	old, oldKey := b.trusted.sign("old", time.Now().Add(-time.Hour), false)
	for name, tc := range map[string]struct {
		pairs []any
		want  string
	}{
		"another key": {[]any{"client_key", another}, "client_key is not the key of client_certificate"},
		"ended": {[]any{"client_certificate", old, "client_key", oldKey},
			"The client certificate has ended on " + time.Now().Add(-time.Hour).UTC().Format(time.DateOnly)},
		"no PEM":        {[]any{"client_certificate", needle}, "client_certificate must be a certificate in PEM"},
		"no key in PEM": {[]any{"client_key", needle}, "client_key must be a private key in PEM"},
		"swapped":       {[]any{"client_certificate", another}, "client_certificate must be a certificate in PEM"},
		"no authority":  {[]any{"server_ca", needle}, "server_ca must hold certificates in PEM"},
	} {
		res := b.Do(http.MethodPost, "/credentials", with(good, "credentials", with(good["credentials"].(object),
			tc.pairs...))).Invalid("body.credentials value_error")
		assert.Contains(t, string(res.Body), tc.want, name)
		assert.NotContains(t, string(res.Body), needle)
	}
	half := with(good, "auth_method", "api_key", "api_key_placement", object{"header_name": "X-Key"}, "credentials",
		object{"api_key": needle, "client_key": another})
	res := b.Do(http.MethodPost, "/credentials", half).Invalid("body.credentials value_error")
	assert.Contains(t, string(res.Body), "client_certificate and client_key go together")

	// Without a certificate the server refuses the connection before it looks at the call. Of one that another
	// authority signed it says nothing: this one closes the connection. What it says is lost where the connection is
	// gone before the call is written to it.
	none := b.made("/credentials", with(half, "credentials", object{"api_key": needle, "server_ca": b.trusted.pem}))
	failed := b.call(b.stack, none, "POST", 1)[0]["error"].(object)
	for range 9 {
		if failed["code"] != "provider_unreachable" {
			break
		}
		failed = b.call(b.stack, none, "POST", 1)[0]["error"].(object)
	}
	assert.Equal(t, []any{"provider_refused", "AUTH_FAILED"}, []any{failed["code"], failed["provider_code"]}, failed)
	assert.Contains(t, failed["provider_message"], "The server does not take the client certificate, or wants one")
	stranger, strange := newAuthority(t).sign("mallory", time.Now().Add(time.Hour), false)
	wrong := b.made("/credentials", with(good, "credentials", with(good["credentials"].(object), "client_certificate",
		stranger, "client_key", strange)))
	assert.Equal(t, "failed", b.call(b.stack, wrong, "GET", 1)[0]["status"])
	// Without the private authority the server itself is not believed.
	unknown := b.made("/credentials", with(good, "credentials", with(good["credentials"].(object), "server_ca", nil)))
	failed = b.call(b.stack, unknown, "GET", 1)[0]["error"].(object)
	assert.Contains(t, failed["message"], "certificate")
	for _, table := range []string{"flow.credential", "flow.secret", "flow.job", "flow.audit_log"} {
		assert.Zero(t, b.count(table+" t WHERE t::text LIKE '%PRIVATE KEY%'"), table)
	}
}
