package openapi_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/catalog/openapi"
	"flowlane/test/servers"
)

// load puts an imported platform into a folder and loads it, as a server would.
func load(t testing.TB, r *openapi.Result) *catalog.Catalog {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, r.PlatformID+".yaml"), r.YAML, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load(catalog.Options{Dir: dir})
	if err != nil {
		t.Fatalf("the imported platform does not load: %.3000v", err)
	}
	return c
}

// vendorFiles are the large public documents.
func vendorFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(servers.Document(t, "box.json")), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestImport_Vendors(t *testing.T) {
	t.Parallel()
	for _, name := range vendorFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			r, err := openapi.Import(text, openapi.Options{PlatformID: "vendor", BaseURL: "https://api.vendor.example"})
			if older := regexp.MustCompile(`(?m)^\s*"?swagger"?\s*:`).Match(text); older {
				if err == nil || !strings.Contains(err.Error(), "Swagger 2.0") {
					t.Errorf("the error of a Swagger document is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			var mem runtime.MemStats
			runtime.ReadMemStats(&mem)
			c := load(t, r)
			effects := map[openapi.Effect]int{}
			for _, e := range r.Report {
				effects[e.Effect]++
				if e.Line == 0 || e.Message == "" {
					t.Errorf("entry without a place: %+v", e)
				}
			}
			t.Logf("%d bytes in %s, loaded in %s; %d operations, %d actions, %d services, %d bytes of YAML, %v, "+
				"%d MB of heap taken from the system",
				len(text), took, time.Since(began)-took, r.Operations, r.Actions, r.Services, len(r.YAML), effects,
				mem.HeapSys>>20)
			for _, e := range r.Report {
				if e.Effect == openapi.LeftOut {
					t.Logf("line %d: left out: %s", e.Line, e.Message)
				}
			}
			// Nearly everything that vendors offer can be called.
			if r.LeftOut*20 > r.Operations {
				t.Errorf("%d of %d operations are left out", r.LeftOut, r.Operations)
			}
			if r.Actions+r.LeftOut != r.Operations || len(c.AllActions()) < r.Actions {
				t.Errorf("%d operations, but %d actions and %d left out", r.Operations, r.Actions, r.LeftOut)
			}
		})
	}
}
