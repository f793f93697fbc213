package openapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"slices"
	"testing"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
	"flowlane/internal/platform/provider"
)

// TestImport_Requests renders the calls of imported actions: what is optional is left out, and forms are forms.
func TestImport_Requests(t *testing.T) {
	t.Parallel()
	c := load(t, importFile(t, "testdata/hostile.yaml", openapi.Options{PlatformID: "h"}))
	key, err := provider.NewSecret(provider.Spec{Method: "api_key", PlatformID: "h",
		Fields: map[string]string{"api_key": "k"}, Placement: provider.Placement{HeaderName: "X-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	const eu = "https://eu.hostile.example/v2/"
	const pet = eu + "pets/7"
	for _, tc := range []struct{ action, params, url, body, media string }{
		{"h__pets__get_pet", `{"path":{"petId":"7"},"query":{"a}}b":"x y","ids":[1,2]}}`, pet +
			"?a%7D%7Db=x+y&ids=1%2C2", "", ""},
		{"h__pets__get_pet", `{"path":{"petId":"7"},"query":{"a}}b":"&","ids":[],"q":"","flag":false,"limit":1.50,"tag":["a","b c"]}}`,
			pet + "?limit=1.50&q=&flag=false&a%7D%7Db=%26&ids=&tag=a&tag=b+c", "", ""},
		{"h__pets__get_pet", `{"path":{"petId":"7"},"query":{"a}}b":"x","ids":[1],"q":null,"tag":[]}}`, pet +
			"?a%7D%7Db=x&ids=1", "", ""},
		{"h__api__form", `{"body":{"To":"+1 555","Media":["a","b"]}}`, "https://eu.hostile.example/v2/form",
			"To=%2B1+555&Media=a&Media=b", "application/x-www-form-urlencoded"},
		{"h__api__deep", `{"query":{"created":{"gte":1},"expand":["a","b"],"sort":["x","y"]}}`, eu +
			"deep?created%5Bgte%5D=1&expand%5B0%5D=a&expand%5B1%5D=b&sort=x%7Cy", "", ""},
		{"h__api__deep", `{}`, eu + "deep", "", ""},
		{"h__api__make", `{"body":{"expand":["a","b"],"tags":["c"],"to":{"k":1}}}`, eu + "deep",
			"expand%5B0%5D=a&expand%5B1%5D=b&tags=c&to%5Bk%5D=1", "application/x-www-form-urlencoded"},
		{"h__api__make", `{"body":{"tags":["c","d"]}}`, eu + "deep", "tags=c&tags=d",
			"application/x-www-form-urlencoded"},
		{"h__api__bytes", `{"body":"aGk="}`, eu + "files", "hi", "image/png"},
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
			t.Errorf("%s %s: %s %q %q", tc.action, tc.params, r.URL, bytes.Join(r.Body, nil),
				r.Header.Get("Content-Type"))
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
	files := action(t, c, "h__api__files")
	if bad := files.ValidateParams([]byte(`{"body":{"about":{}}}`), false); len(bad) != 1 {
		t.Errorf("a file that is needed is missing: %v", bad)
	}
	r, err := provider.Prepare(s, files,
		json.RawMessage(`{"body":{"file":{"filename":"a.txt","text":"hi"},"tags":["x","y"],"about":{"n":1}}}`), nil,
		key, "")
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for parts := multipart.NewReader(bytes.NewReader(bytes.Join(r.Body, nil)), params["boundary"]); ; {
		part, err := parts.NextPart()
		if err != nil {
			break
		}
		text, _ := io.ReadAll(part)
		got = append(got, part.FormName()+part.FileName()+" "+part.Header.Get("Content-Type")+" "+string(text))
	}
	if want := []string{`about application/json {"n":1}`, "tags  x", "tags  y",
		"filea.txt text/plain; charset=utf-8 hi"}; !slices.Equal(got, want) {
		t.Errorf("parts are %q", got)
	}
	if refused := action(t, c, "h__api__make").Call.Answer.Refused; !slices.Contains(refused, 440) ||
		slices.Contains(refused, 408) || slices.Contains(refused, 409) {
		t.Errorf("refused are %v", refused)
	}
}
