package openapi_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"flowlane/internal/catalog"
	"flowlane/internal/catalog/openapi"
	"flowlane/internal/provider"
)

// TestImport_Requests renders the calls of imported actions: what is optional is left out, and forms are forms.
func TestImport_Requests(t *testing.T) {
	t.Parallel()
	c := load(t, importFile(t, "testdata/hostile.yaml", openapi.Options{PlatformID: "h"}))
	key, err := provider.NewSecret(provider.Spec{Method: "api_key", PlatformID: "h", Fields: map[string]string{"api_key": "k"}, Placement: provider.Placement{HeaderName: "X-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	const pet = "https://eu.hostile.example/v2/pets/7"
	for _, tc := range []struct{ action, params, url, body, media string }{
		{"h__pets__get_pet", `{"path":{"petId":"7"},"query":{"a}}b":"x y","ids":[1,2]}}`, pet + "?a%7D%7Db=x+y&ids=1%2C2", "", ""},
		{"h__pets__get_pet", `{"path":{"petId":"7"},"query":{"a}}b":"&","ids":[],"q":"","flag":false,"limit":1.50,"tag":["a","b c"]}}`,
			pet + "?limit=1.50&q=&flag=false&a%7D%7Db=%26&ids=&tag=a&tag=b+c", "", ""},
		{"h__pets__get_pet", `{"path":{"petId":"7"},"query":{"a}}b":"x","ids":[1],"q":null,"tag":[]}}`, pet + "?a%7D%7Db=x&ids=1", "", ""},
		{"h__api__form", `{"body":{"To":"+1 555","Media":["a","b"]}}`, "https://eu.hostile.example/v2/form", "To=%2B1+555&Media=a&Media=b", "application/x-www-form-urlencoded"},
	} {
		a := action(t, c, tc.action)
		if bad := a.ValidateParams([]byte(tc.params), false); len(bad) > 0 && tc.body != "" {
			t.Errorf("%s %s: %v", tc.action, tc.params, bad)
		}
		s, _ := c.Service(a.ServiceID)
		r, err := provider.Prepare(s, a, json.RawMessage(tc.params), nil, key, "")
		if err != nil {
			t.Errorf("%s %s: %v", tc.action, tc.params, err)
			continue
		}
		if r.URL != tc.url || string(bytes.Join(r.Body, nil)) != tc.body || r.Header.Get("Content-Type") != tc.media {
			t.Errorf("%s %s: %s %q %q", tc.action, tc.params, r.URL, bytes.Join(r.Body, nil), r.Header.Get("Content-Type"))
		}
	}
	form := action(t, c, "h__api__form")
	if form.Call.BodyForm != catalog.BodyForm || form.OutcomeCheck != catalog.CheckNone {
		t.Errorf("call is %+v", form.Call)
	}
	s, _ := c.Service(form.ServiceID)
	if r, err := provider.Prepare(s, form, json.RawMessage(`{"body":[1]}`), nil, key, ""); err == nil {
		t.Errorf("a list was written as %s", r.Body)
	}
}
