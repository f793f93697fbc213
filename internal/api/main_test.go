package api_test

import (
	"os"
	"runtime/debug"
	"testing"

	"flowlane/test/servers"
)

// TestMain has garbage collected less often: it took a quarter of the processor time of these tests, which have memory
// enough.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, servers.S3Key); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
