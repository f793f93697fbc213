package api_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/tenant"
)

func TestCredentials_Lifecycle(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Name: "Acme", TimeZone: "America/New_York"})
	created, path := b.create(t, dialerBody("1001/ann", needle))
	tenancy := tenant.TenancyID("dialer", "1001")
	want := with(created, "org_id", b.mine.ID.String(), "created_by", b.mine.AccountID.String(), "name", "Main",
		"platform_id", "dialer",
		"auth_method", "basic_auth", "credentials_ref", "vault://"+created["id"].(string), "tenancy_id", tenancy,
		"tenant", object{"id": tenancy, "is_manual": false, "label": "Acme", "platform_id": "dialer"},
		"grant_type", nil, "token_url", nil, "audience", nil, "scopes", []any{}, "api_key_placement", nil,
		"aws_region", nil, "aws_default_bucket", nil, "aws_endpoint_url", nil, "allowed_origins", []any{b.dialer},
		"status", "active", "last_verified", nil)
	if !reflect.DeepEqual(created, want) {
		t.Errorf("created %v\nwant %v", created, want)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); !reflect.DeepEqual(read, created) {
		t.Errorf("read %v\nwant %v", read, created)
	}
	tested := b.Do("POST", path+"/test", nil).Want(200).JSON()
	if tested["success"] != true || tested["error"] != nil || tested["details"] == "" {
		t.Errorf("test = %v", tested)
	}
	verified := b.Do("GET", path, nil).Want(200).JSON()
	if verified["last_verified"] != tested["tested_at"] {
		t.Errorf("last_verified %v, tested_at %v", verified["last_verified"], tested["tested_at"])
	}
	use := verified["telemetry"].(object)["dialer__api"].(object)
	if use["last_used_at"] == nil || use["last_succeeded_at"] == nil || use["last_stamped_at"] == nil ||
		use["last_failed_at"] != nil || use["last_failure_class"] != nil {
		t.Errorf("telemetry = %v", use)
	}
	// What was read can be sent back; it sets what can be set, and nothing else.
	back := with(verified, "name", "Renamed", "credentials", object{"username": "1001/ann", "password": needle + "2"},
		"tenancy_id", "dialer-0", "credentials_ref", 7)
	rotated := b.Do("PUT", path, back).Want(200).JSON()
	if want := with(verified, "name", "Renamed", "last_verified", nil, "telemetry",
		rotated["telemetry"]); !reflect.DeepEqual(rotated, want) {
		t.Errorf("rotated %v\nwant %v", rotated, want)
	}
}

func TestCredentials_List(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	var want []string
	for i := range 3 {
		c, path := b.create(t, dialerBody("1001", needle))
		want = append(want, c["id"].(string))
		if i == 1 {
			b.Do("PUT", path, with(dialerBody("", ""), "credentials", nil, "status", "revoked")).Want(200)
		}
	}
	b.As(b.other.Key).Do("POST", "/credentials", dialerBody("1001", needle)).Want(201)
	type list struct {
		Items []struct {
			ID        string
			Telemetry object
		}
		Total, Limit, Skip int
		NextCursor         *string `json:"next_cursor"`
	}
	get := func(query string) (l list) {
		b.Do("GET", "/credentials?"+query, nil).Want(200).Into(&l)
		return l
	}
	first := get("limit=2")
	if first.Total != 3 || first.Limit != 2 || first.NextCursor == nil || len(first.Items) != 2 ||
		first.Items[0].ID != want[0] || len(first.Items[0].Telemetry) != 1 {
		t.Fatalf("first page = %+v", first)
	}
	second := get("limit=2&cursor=" + *first.NextCursor)
	if len(second.Items) != 1 || second.Items[0].ID != want[2] || second.NextCursor != nil || second.Total != 3 {
		t.Errorf("second page = %+v", second)
	}
	if revoked := get("status=revoked"); revoked.Total != 1 || revoked.Items[0].ID != want[1] {
		t.Errorf("revoked = %+v", revoked)
	}
	if skipped := get("skip=2"); len(skipped.Items) != 1 || skipped.Items[0].ID != want[2] || skipped.Skip != 2 {
		t.Errorf("skipped = %+v", skipped)
	}
	b.Do("GET", "/credentials?status=active&cursor="+*first.NextCursor, nil).Detail(400, "Invalid cursor")
	b.Do("GET", "/credentials?status=gone", nil).Invalid("query.status enum")
}

func TestCredentials_Isolation(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	created, path := b.create(t, dialerBody("1001", needle))
	other := b.As(b.other.Key)
	for _, p := range []string{path, "/credentials/" + uuid.NewString(), "/credentials/x",
		"/credentials/" + strings.ToUpper(created["id"].(string))} {
		other.Do("GET", p, nil).Detail(404, "Credential not found")
		other.Do("PUT", p, dialerBody("1001", needle)).Detail(404, "Credential not found")
		other.Do("POST", p+"/test", nil).Detail(404, "Credential not found")
	}
	var list struct{ Total int }
	if other.Do("GET", "/credentials", nil).Want(200).Into(&list); list.Total != 0 {
		t.Errorf("another organization sees %d credentials", list.Total)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); !reflect.DeepEqual(read, created) {
		t.Errorf("read %v\nwant %v", read, created)
	}
	b.As("").Do("GET", path, nil).Detail(401, "Authentication required")
}

func TestCredentials_CreateRefused(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	ok := dialerBody("1001", needle)
	header := keyedBody(object{"header_name": "X-Api-Token"})
	for name, tc := range map[string]struct {
		body any
		want []string
	}{
		"nothing": {object{}, []string{"body.auth_method missing", "body.credentials missing", "body.name missing",
			"body.platform_id missing"}},
		"unknown field":    {with(ok, "secret", needle), []string{"body.secret extra_forbidden"}},
		"null name":        {with(ok, "name", nil), []string{"body.name null_not_allowed"}},
		"null credentials": {with(ok, "credentials", nil), []string{"body.credentials null_not_allowed"}},
		"null status":      {with(ok, "status", nil), []string{"body.status null_not_allowed"}},
		"null scopes":      {with(ok, "scopes", nil), []string{"body.scopes null_not_allowed"}},
		"missing password": {with(ok, "credentials", object{"username": needle}),
			[]string{"body.credentials.password missing"}},
		"unknown secret": {with(ok, "credentials", object{"username": "1001", "password": needle, "pin": needle}),
			[]string{"body.credentials.pin extra_forbidden"}},
		"secret is a number": {with(ok, "credentials", object{"username": "1001", "password": 7}),
			[]string{"body.credentials.password string_type"}},
		"secret is a list":   {with(ok, "credentials", []string{needle}), []string{"body.credentials object_type"}},
		"unsupported method": {with(ok, "auth_method", "kerberos"), []string{"body.auth_method enum"}},
		"other method":       {with(header, "platform_id", "dialer"), []string{"body.auth_method value_error"}},
		"no placement":       {with(header, "api_key_placement", nil), []string{"body.api_key_placement missing"}},
		"both placements": {with(header, "api_key_placement", object{"header_name": "X-A", "query_param": "a"}),
			[]string{"body.api_key_placement value_error"}},
		"scheme alone": {with(header, "api_key_placement", object{"scheme": "Bearer", "query_param": "a"}),
			[]string{"body.api_key_placement.scheme value_error"}},
		"unknown placement": {with(header, "api_key_placement", object{"cookie": "a"}),
			[]string{"body.api_key_placement.cookie extra_forbidden"}},
		"NUL": {with(ok, "credentials", object{"username": "1001", "password": needle + "\x00"}),
			[]string{"body.credentials.password value_error"}},
	} {
		t.Log(name)
		b.Do("POST", "/credentials", tc.body).Invalid(tc.want...)
	}
	b.Do("POST", "/credentials", with(ok, "platform_id", "nowhere")).Detail(404, "Platform not found")
	b.mustNotLeak(t)
}

func TestCredentials_Placement(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	created, path := b.create(t, keyedBody(object{"header_name": "X-Api-Token", "scheme": "Token", "query_param": nil}))
	if got := created["api_key_placement"]; !reflect.DeepEqual(got,
		object{"header_name": "X-Api-Token", "scheme": "Token", "query_param": nil}) {
		t.Errorf("placement = %v", got)
	}
	if b.keyed.header != "Token "+needle+"-key" || b.keyed.query != "" ||
		created["tenancy_id"] != tenant.TenancyID("keyed", "k-1") {
		t.Errorf("the platform saw header %q, query %q; created %v", b.keyed.header, b.keyed.query, created)
	}
	b.Do("PUT", path, with(keyedBody(object{"query_param": "key"}), "credentials",
		absent)).Invalid("body.credentials missing")
	b.Do("PUT", path, keyedBody(object{"query_param": "key"})).Want(200)
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true ||
		b.keyed.query != needle+"-key" || b.keyed.header != "" {
		t.Errorf("test %v; the platform saw header %q, query %q", tested, b.keyed.header, b.keyed.query)
	}
	b.mustNotLeak(t)
}

func TestCredentials_PlainHTTP(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	created, path := b.create(t, coreBody("https://api.example"))
	if created["tenancy_id"] != nil || created["tenant"] != nil || len(created["telemetry"].(object)) != 0 {
		t.Errorf("created = %v", created)
	}
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != false ||
		tested["error"] != "UNKNOWN" || tested["details"] == "" {
		t.Errorf("test = %v", tested)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); len(read["telemetry"].(object)) != 0 {
		t.Errorf("a use that never was is recorded: %v", read)
	}
	b.mustNotLeak(t)
}

func TestCredentials_Rotation(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr(needle)})
	created, path := b.create(t, dialerBody("1001/ann", needle))
	b.Do("POST", path+"/test", nil).Want(200)
	before := b.Do("GET", path, nil).Want(200).JSON()
	body := with(dialerBody("1001/ann", needle), "name", "Changed", "status", "expired")
	for name, tc := range map[string]struct {
		body   object
		status int
	}{
		"another account":  {with(body, "credentials", object{"username": "2002", "password": needle}), 409},
		"another user":     {with(body, "credentials", object{"username": "1001/bob", "password": needle}), 409},
		"another platform": {with(body, "platform_id", "keyed"), 400},
		"missing field":    {with(body, "credentials", object{}), 422},
		"unknown field":    {with(body, "kek", 1), 422},
		"null name":        {with(body, "name", nil), 422},
	} {
		b.Do("PUT", path, tc.body).Want(tc.status)
		if after := b.Do("GET", path, nil).Want(200).JSON(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s changed it: %v\nbefore %v", name, after, before)
		}
		if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true {
			t.Errorf("%s changed the secret: %v", name, tested)
		}
		before = b.Do("GET", path, nil).Want(200).JSON()
	}
	// A provider that does not know the new secret yet is no mismatch.
	rotated := b.Do("PUT", path+"?verify=false", with(body, "status", absent, "credentials",
		object{"username": "1001/ann", "password": needle + "-new"})).Want(200).JSON()
	if rotated["tenancy_id"] != created["tenancy_id"] || rotated["last_verified"] != nil ||
		rotated["status"] != "active" || rotated["credentials_ref"] != created["credentials_ref"] {
		t.Errorf("rotated = %v", rotated)
	}
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != false ||
		tested["error"] != "AUTH_FAILED" {
		t.Errorf("test = %v", tested)
	}
	b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr(needle + "-new")})
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true {
		t.Errorf("test = %v", tested)
	}
	b.mustNotLeak(t)
}

func TestCredentials_TestFailures(t *testing.T) {
	t.Parallel()
	b := setupCredentials(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr("something else")})
	created := b.Do("POST", "/credentials?verify=false", dialerBody("1001", needle)).Want(201).JSON()
	path := "/credentials/" + created["id"].(string)
	if created["tenancy_id"] != nil || created["tenant"] != nil {
		t.Errorf("created = %v", created)
	}
	for _, tc := range []struct {
		arrange func()
		want    string
	}{
		{func() {}, "AUTH_FAILED"},
		{func() {
			b.sim.SetAccount("1001", dialersim.AccountSettings{Password: ptr(needle), Suspended: ptr(true)})
		}, "PERMISSION_DENIED"},
		{func() {
			b.sim.SetAccount("1001", dialersim.AccountSettings{Suspended: ptr(false)})
			b.sim.AddFault(dialersim.Fault{Kind: "over_limit", Operation: "whoami"})
		}, "RATE_LIMITED"},
		{func() { b.sim.AddFault(dialersim.Fault{Kind: "cut_before", Operation: "whoami"}) }, "NETWORK"},
		{func() { b.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "whoami", Status: 502}) }, "UNKNOWN"},
		{func() { b.sim.AddFault(dialersim.Fault{Kind: "garbage_body", Operation: "whoami"}) }, "UNKNOWN"},
	} {
		tc.arrange()
		tested := b.Do("POST", path+"/test", nil).Want(200).JSON()
		if tested["success"] != false || tested["error"] != tc.want || tested["details"] == "" ||
			tested["tested_at"] == nil {
			t.Errorf("test = %v, want %s", tested, tc.want)
		}
		read := b.Do("GET", path, nil).Want(200).JSON()
		if use := read["telemetry"].(object)["dialer__api"].(object); use["last_failure_class"] != tc.want ||
			use["last_succeeded_at"] != nil || read["last_verified"] != nil {
			t.Errorf("after %s: %v", tc.want, read)
		}
	}
	if tested := b.Do("POST", path+"/test", nil).Want(200).JSON(); tested["success"] != true {
		t.Errorf("test = %v", tested)
	}
	if read := b.Do("GET", path, nil).Want(200).JSON(); read["tenancy_id"] != tenant.TenancyID("dialer", "1001") {
		t.Errorf("the account is not bound: %v", read)
	}
	b.mustNotLeak(t)
}
