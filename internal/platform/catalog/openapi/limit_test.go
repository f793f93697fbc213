package openapi_test

import (
	"strings"
	"testing"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
)

const limited = `
openapi: 3.0.3
info: {title: Limited}
servers: [{url: "https://limited.example"}]
paths:
  /a:
    get: {operationId: a, tags: [One], x-acme-ratelimit: {steady: 150/m, burst: 10/s, other: 9/s, daily: 1000/d}, responses: {"200": {description: ok}}}
    post: {operationId: b, tags: [One], responses: {"200": {description: ok}}}
  /c:
    get: {operationId: a, tags: [Two], x-acme-rate-limit: {steady: 5/m}, responses: {"200": {description: ok}}}
    put: {operationId: odd, tags: [Two], x-acme-ratelimit: {steady: 5/fortnight}, responses: {"200": {description: ok}}}
    delete: {operationId: none, tags: [Two], x-acme-ratelimit: {}, responses: {"200": {description: ok}}}
`

// TestImport_Limits: limits that operations name become budgets of the account that the caller says how to tell.
func TestImport_Limits(t *testing.T) {
	t.Parallel()
	r, err := openapi.Import([]byte(limited), openapi.Options{PlatformID: "c", Account: openapi.Account{Path: "/me",
		Number: "data.0.id"}})
	if err != nil {
		t.Fatal(err)
	}
	c := load(t, r)
	p, _ := c.Platform("c")
	if p.Account == nil || p.Account.Whoami.Path != "/me" || p.Account.Whoami.AccountNumber != "data.0.id" {
		t.Errorf("the account is %+v", p.Account)
	}
	windows := map[string][]catalog.Window{
		"c__one__a": {
			{Seconds: 1, Calls: 9, Kind: "rolling"}, {Seconds: 60, Calls: 150, Kind: "rolling"},
			{Seconds: 86400, Calls: 1000, Kind: "rolling"},
		},
		"c__one__b": nil, "c__two__a": {{Seconds: 60, Calls: 5, Kind: "rolling"}}, "c__two__odd": nil,
		"c__two__none": nil,
	}
	for id, want := range windows {
		a := action(t, c, id)
		if len(a.Buckets) != min(1, len(want)) {
			t.Errorf("%s spends %v", id, a.Buckets)
			continue
		}
		for i, w := range want {
			got := a.Service().RateBuckets[a.Buckets[0]].Further
			if len(got) != len(want) || got[i] != w {
				t.Errorf("%s has %+v", id, got)
			}
		}
	}
	dropped := func(r *openapi.Result, message string) (n int) {
		for _, e := range r.Report {
			if strings.Contains(e.Message, message) && strings.Contains(e.Pointer, "x-acme") {
				n++
			}
		}
		return n
	}
	if got := dropped(r, "an action has no x-acme-ratelimit"); got != 2 {
		t.Errorf("%d limits are left out: %+v", got, r.Report)
	}
	r, err = openapi.Import([]byte(limited), openapi.Options{PlatformID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if a := action(t, load(t, r), "c__one__a"); len(a.Buckets) > 0 || dropped(r, "--account") != 2 {
		t.Errorf("without an account: %v %+v", a.Buckets, r.Report)
	}
	for _, bad := range []string{"/me", "me=id", "/me=", ""} {
		if _, err := openapi.ParseAccount(bad); err == nil || !strings.Contains(err.Error(),
			"/api/accounts=data.0.id") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if a, err := openapi.ParseAccount("/me=data.0.id"); err != nil ||
		a != (openapi.Account{Path: "/me", Number: "data.0.id"}) {
		t.Errorf("%+v %v", a, err)
	}
}
