package catalog

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// labelled is the good platform with a base URL and labels.
func labelled(base, labels string) map[string]string {
	text := strings.Replace(good, "https://api.shop.example/v2/", base, 1)
	text = strings.Replace(text, "services:\n", "labels:\n"+labels+"\nservices:\n", 1)
	return map[string]string{"shop.yaml": strings.Replace(text, "    actions:",
		"      - {name: shop, label: Shop, type: string, required: true, secret: false}\n    actions:", 1)}
}

// TestService_Address: whatever fills a label, the address keeps to the pattern.
func TestService_Address(t *testing.T) {
	t.Parallel()
	load := func(base, labels string) *Service {
		c := load(t, Options{Dir: folder(t, labelled(base, labels))})
		s, _ := c.Service("shop__api")
		return s
	}
	shop := load("https://{shop}.shop.example/v2/{shop}", "  shop: {field: shop}")
	dc := load("https://{dc}.api.shop.example/3.0", `  dc: {field: api_key, match: '.*-([a-z]+[0-9]+)'}`)
	instance := load("https://{instance}.my.shop.example",
		`  instance: {token: instance_url, match: 'https://(.+)\.my\.shop\.example/?'}`)
	region := load("https://api.{region}",
		"  region: {field: shop, values: [eu.shop.example, shop.example], default: shop.example}")
	field := func(name, value string) Known { return Known{Fields: map[string]string{name: value}} }
	token := func(value string) Known {
		return Known{Fields: map[string]string{}, Token: map[string]string{"instance_url": value}}
	}
	for _, tc := range []struct {
		of    *Service
		known Known
		want  string
	}{
		{shop, field("shop", "acme"), "https://acme.shop.example/v2/acme"},
		{shop, field("shop", "Acme-2"), "https://acme-2.shop.example/v2/Acme-2"},
		{shop, Known{}, "https://*.shop.example/v2/*"},
		{shop, field("shop", ""), ""},
		{shop, field("shop", "a.b"), ""},
		{shop, field("shop", "evil.example/"), ""},
		{shop, field("shop", "evil.example?"), ""},
		{shop, field("shop", "evil.example#"), ""},
		{shop, field("shop", `evil.example\`), ""},
		{shop, field("shop", "me@evil"), ""},
		{shop, field("shop", "a:80"), ""},
		{shop, field("shop", "-a"), ""},
		{shop, field("shop", "*"), ""},
		{shop, field("shop", "a%2f"), ""},
		{shop, field("shop", "a\n"), ""},
		{dc, field("api_key", "0123abc-us19"), "https://us19.api.shop.example/3.0"},
		{dc, field("api_key", "0123abc"), ""},
		{dc, field("api_key", "0123abc-us19.evil.example/"), ""},
		{instance, token("https://acme--dev.sandbox.my.shop.example"), "https://acme--dev.sandbox.my.shop.example"},
		{instance, token("https://evil.example/?.my.shop.example"), ""},
		{instance, token("https://evil.example#.my.shop.example"), ""},
		{instance, token("https://evil.example"), ""},
		{instance, token("http://acme.my.shop.example"), ""},
		{instance, token(""), ""},
		{instance, field("shop", "a"), "https://*.my.shop.example"},
		{region, field("shop", "eu.shop.example"), "https://api.eu.shop.example"},
		{region, field("shop", ""), "https://api.shop.example"},
		{region, field("shop", "evil.example"), ""},
		{region, field("shop", "localhost"), ""},
	} {
		got, err := tc.of.Address(tc.known)
		if (err == nil) != (tc.want != "") || err == nil && got != tc.want {
			t.Errorf("%v in %s: %q, %v; want %q", tc.known, tc.of.BaseURL, got, err, tc.want)
		}
	}
}

func TestLoad_LabelMistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ base, labels, want string }{
		"unknown":   {"https://{shop}.shop.example", "  dc: {field: shop}", `the platform has no label "shop"`},
		"no source": {"https://{shop}.shop.example", "  shop: {default: a}", "one of field, setting and token"},
		"two sources": {"https://{shop}.shop.example", "  shop: {field: shop, token: a}",
			"one of field, setting and token"},
		"no field": {"https://{shop}.shop.example", "  shop: {field: shops}",
			`no service has the credential field "shops"`},
		"setting":    {"https://{shop}.shop.example", "  shop: {setting: audience}", `setting is "audience"`},
		"secret":     {"https://{shop}.shop.example", "  shop: {field: api_key}", "its value is no secret"},
		"no group":   {"https://{shop}.shop.example", "  shop: {field: shop, match: 'a+'}", "with one group"},
		"broken":     {"https://{shop}.shop.example", "  shop: {field: shop, match: '('}", "with one group"},
		"any host":   {"https://{shop}", "  shop: {field: shop}", "the domain that all addresses share"},
		"any domain": {"https://{shop}.example", "  shop: {field: shop}", "the domain that all addresses share"},
		"domain's part": {"https://{shop}shop.example.org", "  shop: {field: shop}",
			"the domain that all addresses share"},
		"token in path": {"https://a.shop.example/{t}", "  t: {token: t}", "can stand in the host alone"},
		"open token": {"https://a.shop.example\n    other_auth: [{auth_method: oauth2, " +
			"token_url: 'https://{shop}/t'}]", "  shop: {field: shop}",
			"token_url: behind {shop} must stand the domain"},
		"early token": {"https://a.shop.example\n    other_auth: [{auth_method: oauth2, token_url: " +
			"'https://{t}.shop.example/t'}]", "  t: {token: t}", "token_url: {t} is known only once there is a token"},
		"early header": {"https://a.shop.example\n    headers: {x: '{t}'}", "  t: {token: t}",
			"headers: {t} is known only once there is a token"},
		"consent query": {"https://a.shop.example\n    other_auth: [{auth_method: oauth2, authorize_url: " +
			"'https://a.example/t?x={shop}'}]", "  shop: {field: shop}", "no label can stand in its query"},
		"empty": {"https://{shop}.shop.example", "  shop:", `label "shop" must be a slug with a source`},
	} {
		_, err := Load(Options{Dir: folder(t, labelled(tc.base, tc.labels))})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v; want %q", name, err, tc.want)
		}
	}
}

// TestLoad_Shipped: platforms that give each customer an address keep calls and tokens within it; an operator's base
// URL has both.
func TestLoad_Shipped(t *testing.T) {
	t.Parallel()
	shipped, err := Load(Options{})
	require.NoError(t, err)
	moved, err := Load(Options{BaseURLs: map[string]string{"salesforce": "http://127.0.0.1:1/x",
		"genesys": "http://127.0.0.1:2"}})
	require.NoError(t, err)
	for _, tc := range []struct{ platform, field, value, address, token string }{
		{"salesforce", "my_domain", "acme--uat.sandbox", "https://acme--uat.sandbox.my.salesforce.com",
			"https://acme--uat.sandbox.my.salesforce.com/services/oauth2/token"},
		{"salesforce", "my_domain", "evil.example#", "", ""},
		{"salesforce", "my_domain", "acme.lightning", "", ""},
		{"genesys", "region", "mypurecloud.de", "https://api.mypurecloud.de",
			"https://login.mypurecloud.de/oauth/token"},
		{"genesys", "region", "evil.example", "", ""},
	} {
		s, known := shipped.Services(tc.platform)[0], Known{Fields: map[string]string{tc.field: tc.value}}
		address, err := s.Address(known)
		assert.Equal(t, tc.address != "", err == nil, "%s %s: %v", tc.platform, tc.value, err)
		if err == nil {
			assert.Equal(t, tc.address, address)
			token, err := s.Located(s.SignIn.TokenURL, known)
			require.NoError(t, err)
			assert.Equal(t, tc.token, token)
		}
	}
	for _, a := range moved.Services("salesforce")[0].Auths() {
		assert.Equal(t, "http://127.0.0.1:1/services/oauth2/token", a.TokenURL, a.Grant)
	}
	assert.Equal(t, "http://127.0.0.1:2/oauth/token", moved.Services("genesys")[0].SignIn.TokenURL)
}

// TestCall_MayReach: an address that an answer gives leads to no origin but those that are allowed.
func TestCall_MayReach(t *testing.T) {
	t.Parallel()
	call := Call{Origins: []string{"https://*.files.example.com", "https://one.example.org:8443"}}
	for address, want := range map[string]bool{
		"https://a.files.example.com/x?sig=1": true, "https://A.b.files.example.com": true,
		"https://one.example.org:8443/": true,
		"https://files.example.com":     false, "https://.files.example.com": false,
		"http://a.files.example.com":      false,
		"https://a.files.example.com:444": false, "https://a.files.example.com.evil.net": false,
		"https://evilfiles.example.com": false,
		"https://one.example.org":       false, "https://evil.net/.files.example.com": false,
	} {
		u, err := url.Parse(address)
		require.NoError(t, err)
		assert.Equal(t, want, call.MayReach(u), address)
	}
	for pattern, want := range map[string]bool{
		"https://*.s3.amazonaws.com": true, "https://a.example": true, "https://*.com": false, "https://*": false,
		"https://a.example/x": false, "a.example": false,
	} {
		assert.Equal(t, want, originPattern.MatchString(pattern), pattern)
	}
}
