package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/platform/tenant"
)

// namedTenant is a new tenant that the organization has named.
func (s *stack) namedTenant() (id string) {
	s.t.Helper()
	return s.made("/tenants", fmt.Sprintf(`{"platform_id":"dialer","label":%q}`, s.unique()))
}

// dialerCredential is the body of a credential of an account of the platform.
func dialerCredential(username string, more ...any) object {
	return with(object{
		"name": "c", "platform_id": "dialer", "auth_method": "basic_auth", "credentials": object{"username": username,
			"password": "x"},
	}, more...)
}

func TestTenants_Named(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	made := s.Do(http.MethodPost, "/tenants", `{"platform_id":"dialer","label":"Sandbox","account_number":"77"}`).Want(
		http.StatusCreated).JSON()
	id := made["id"].(string)
	assert.Regexp(t, regexp.MustCompile(`^dialer-[0-9a-f]{16}$`), id)
	assert.NotEqual(t, tenant.TenancyID("dialer", "77"), id, "the id of an account that the provider identified")
	assert.Equal(t, object{"id": id, "platform_id": "dialer", "label": "Sandbox", "is_manual": true,
		"account_number": "77", "created_at": made["created_at"]}, made)
	assert.Equal(t, made, s.get("/tenants/"+id))
	s.Do(http.MethodPost, "/tenants", `{"platform_id":"dialer","label":"Other","account_number":"77"}`).Want(
		http.StatusConflict)
	assert.Nil(t, s.Do(http.MethodPost, "/tenants", `{"platform_id":"core","label":"Sandbox"}`).Want(
		http.StatusCreated).JSON()["account_number"])

	// Another organization's account of the same number is another one.
	theirs := s.other.Do(http.MethodPost, "/tenants",
		`{"platform_id":"dialer","label":"Sandbox","account_number":"77"}`).Want(http.StatusCreated).JSON()
	assert.NotEqual(t, id, theirs["id"])
	for method, body := range map[string]any{http.MethodGet: nil, http.MethodPatch: `{"label":"x"}`,
		http.MethodDelete: nil} {
		s.other.Do(method, "/tenants/"+id, body).Detail(http.StatusNotFound, "Tenant not found")
	}
	s.other.Do(http.MethodPost, "/credentials", dialerCredential("77", "tenancy_id", id)).Detail(http.StatusNotFound,
		"Tenant not found")

	assert.Equal(t, made, s.Do(http.MethodPatch, "/tenants/"+id, `{}`).Want(http.StatusOK).JSON())
	assert.Equal(t, with(made, "label", "Renamed"), s.Do(http.MethodPatch, "/tenants/"+id, `{"label":"Renamed"}`).Want(
		http.StatusOK).JSON())
	s.Do(http.MethodPatch, "/tenants/"+id, `{"label":null,"platform_id":"core"}`).Invalid("body.label null_not_allowed",
		"body.platform_id extra_forbidden")
	s.Do(http.MethodPatch, "/tenants/"+id, `{"label":""}`).Invalid("body.label string_too_short")
	s.Do(http.MethodPost, "/tenants", `{}`).Invalid("body.label missing", "body.platform_id missing")
	s.Do(http.MethodPost, "/tenants", `{"platform_id":"dialer","label":"a\u0000"}`).Invalid("body.label value_error")
	s.Do(http.MethodPost, "/tenants", `{"platform_id":"nowhere","label":"a"}`).Detail(http.StatusNotFound,
		"Platform not found")
}

func TestTenants_Credentials(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	id := s.made("/tenants", `{"platform_id":"dialer","label":"Sandbox"}`)
	made := s.Do(http.MethodPost, "/credentials", dialerCredential("88/ann", "tenancy_id", id)).Want(
		http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	assert.Equal(t, id, made["tenancy_id"])
	assert.Equal(t, object{"id": id, "is_manual": true, "label": "Sandbox", "platform_id": "dialer"}, made["tenant"])
	assert.Equal(t, "88", s.get("/tenants/" + id)["account_number"], "what the provider said")
	assert.Equal(t, true, s.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()["success"])
	assert.Equal(t, []any{made["id"]}, s.get("/platforms/dialer/domains/" + id)["credential_ids"])
	assert.Equal(t, "Sandbox", s.get("/platforms/dialer/domains/" + id)["label"])

	// From then on it is that account, for rotations and for other credentials.
	s.Do(http.MethodPut, path, dialerCredential("99/ann")).Want(http.StatusConflict)
	s.Do(http.MethodPost, "/credentials", dialerCredential("99", "tenancy_id", id)).Want(http.StatusConflict)
	s.Do(http.MethodPut, path, with(made, "credentials", object{"username": "88/ann", "password": "y"}, "tenancy_id",
		"ignored")).Want(http.StatusOK)
	assert.Equal(t, id, s.get(path)["tenancy_id"])

	s.Do(http.MethodPost, "/credentials", dialerCredential("1", "tenancy_id", "dialer-0000000000000000")).Detail(
		http.StatusNotFound, "Tenant not found")
	s.Do(http.MethodPost, "/credentials", dialerCredential("acme", "tenancy_id", s.tenancy)).Invalid(
		"body.tenancy_id value_error")
	plain := s.made("/tenants", `{"platform_id":"core","label":"Sandbox"}`)
	s.Do(http.MethodPost, "/credentials", dialerCredential("88", "tenancy_id", plain)).Invalid(
		"body.tenancy_id value_error")
	s.Do(http.MethodGet, "/platforms/dialer/domains/"+plain, nil).Detail(http.StatusNotFound, "Domain not found")

	s.Do(http.MethodDelete, "/tenants/"+id, nil).Detail(http.StatusConflict,
		"Tenant has credentials: delete them first")
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, "/tenants/"+id, nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, "/tenants/"+id, nil).Detail(http.StatusNotFound, "Tenant not found")
	s.Do(http.MethodGet, "/platforms/dialer/domains/"+id, nil).Detail(http.StatusNotFound, "Domain not found")
	assert.Equal(t, id, s.made("/tenants", `{"platform_id":"dialer","label":"Sandbox"}`),
		"the same account has the same id again")
}

// TestTenants_WorkWaits: an account is not forgotten while a batch calls it, even if its credential is gone.
func TestTenants_WorkWaits(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(uploadSteps)
	batch := s.trigger(flow, `{"records":[{"id":"a"}]}`)
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"archived"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/credentials/"+s.credential, nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, "/tenants/"+s.tenancy, nil).Detail(http.StatusConflict,
		"Tenant has batches that are not over: wait for them, or cancel them")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/tenants/"+s.tenancy, nil).Want(http.StatusNoContent)
	// A new credential of the account brings it back.
	old := s.tenancy
	s.identify("acme")
	assert.Equal(t, old, s.tenancy)
	s.get("/tenants/" + old)
}

// TestTenants_Shared: two organizations with one account share its budgets, and see nothing else of each other.
func TestTenants_Shared(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Name: "Acme Inc"})
	their := *s
	their.Client = s.other
	their.identify("acme")
	require.Equal(t, s.tenancy, their.tenancy)
	require.NotEqual(t, s.credential, their.credential)
	path := "/platforms/dialer/domains/" + s.tenancy
	used := func(s *stack) float64 {
		return inside(s.get(path+"/headroom"), "buckets", "upload", "windows", "86400", "used").(float64)
	}
	assert.Equal(t, "completed", s.await(s.trigger(s.define(uploadSteps), `{"records":[{"id":"a"}]}`))["status"])
	assert.InDelta(t, 1, used(s), 0)
	assert.InDelta(t, 1, used(&their), 0, "what another organization spent of the account")
	assert.Equal(t, "completed", their.await(their.trigger(their.define(uploadSteps),
		`{"records":[{"id":"b"}]}`))["status"])
	assert.InDelta(t, 2, used(s), 0)

	s.Do(http.MethodPatch, "/tenants/"+s.tenancy, `{"label":"Ours"}`).Want(http.StatusOK)
	assert.Equal(t, "Ours", s.get("/credentials/" + s.credential)["tenant"].(object)["label"])
	assert.Equal(t, "Ours", s.get(path)["label"])
	for _, got := range []object{their.get("/tenants/" + s.tenancy), their.get(path), their.get("/credentials/" +
		their.credential)["tenant"].(object)} {
		assert.NotEqual(t, "Ours", got["label"])
	}
	assert.Equal(t, []any{their.credential}, their.get(path)["credential_ids"])
	s.Do(http.MethodPost, "/credentials", dialerCredential("acme", "tenancy_id", s.tenancy)).Invalid(
		"body.tenancy_id value_error")

	// One that forgets the account takes nothing from the other.
	flow := s.get("/flows/definitions")["items"].([]any)[0].(object)["id"].(string)
	s.Do(http.MethodPatch, "/flows/definitions/"+flow, `{"status":"archived"}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/credentials/"+s.credential, nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, "/tenants/"+s.tenancy, nil).Want(http.StatusNoContent)
	assert.InDelta(t, 2, used(&their), 0)
}

// TestTenants_DeleteBesideBind: of a deletion and a credential that is bound, the credential is never left without.
func TestTenants_DeleteBesideBind(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for i := range 15 {
		id := s.namedTenant()
		var group sync.WaitGroup
		var deleted, created int
		group.Go(func() { deleted = s.Do(http.MethodDelete, "/tenants/"+id, nil).Status })
		group.Go(func() {
			created = s.Do(http.MethodPost, "/credentials", dialerCredential(fmt.Sprint("n", i), "tenancy_id",
				id)).Status
		})
		group.Wait()
		if deleted == http.StatusNoContent {
			assert.Equal(t, http.StatusNotFound, created)
		} else {
			assert.Equal(t, []int{http.StatusConflict, http.StatusCreated}, []int{deleted, created})
		}
	}
}
