package openapi_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"flowlane/internal/catalog"
	"flowlane/internal/catalog/openapi"
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

// vendorFiles names large public documents, separated as in PATH.
const vendorFiles = "FLOWLANE_TEST_OPENAPI_FILES"

func TestImport_Vendors(t *testing.T) {
	t.Parallel()
	if os.Getenv(vendorFiles) == "" {
		t.Skipf("set %s to the paths of large public OpenAPI documents, separated as in PATH", vendorFiles)
	}
	for _, name := range filepath.SplitList(os.Getenv(vendorFiles)) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			r, err := openapi.Import(text, openapi.Options{PlatformID: "vendor", BaseURL: "https://api.vendor.example"})
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
			t.Logf("%d bytes in %s, loaded in %s; %d operations, %d actions, %d services, %d bytes of YAML, %v, %d MB of heap taken from the system",
				len(text), took, time.Since(began)-took, r.Operations, r.Actions, r.Services, len(r.YAML), effects, mem.HeapSys>>20)
			if r.Actions+r.LeftOut != r.Operations || len(c.AllActions()) < r.Actions {
				t.Errorf("%d operations, but %d actions and %d left out", r.Operations, r.Actions, r.LeftOut)
			}
		})
	}
}
