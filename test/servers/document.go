package servers

import (
	"os"
	"path/filepath"
	"testing"
)

// documentFolder names a folder with vendors' OpenAPI documents; without it, usualFolder beside the repository is
// taken.
const (
	documentFolder = "FLOWLANE_TEST_OPENAPI_DIR"
	usualFolder    = "../shared/data/openapi"
)

// Document is the file of a vendor's OpenAPI document. Where it is missing the test is skipped, or fails where the
// folder was named or CI is set.
func Document(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(documentFolder)
	if dir == "" {
		dir = filepath.Join(root(t), usualFolder)
	}
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); err != nil {
		if os.Getenv(documentFolder) != "" {
			t.Fatalf("%s names %s, which lacks %s", documentFolder, dir, name)
		}
		Missing(t, "there is no %s in %s beside the repository; %s names another folder", name, usualFolder,
			documentFolder)
	}
	return file
}
