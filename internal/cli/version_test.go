package cli

import (
	"reflect"
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var f versionFacts
	f.read(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"},
		{Key: "vcs.time", Value: "2026-01-31T00:00:00Z"},
		{Key: "vcs.modified", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"}, {Key: "-trimpath", Value: "true"},
	}})
	want := versionFacts{
		Version: "v1.2.3", Commit: "abc", CommitTime: "2026-01-31T00:00:00Z", Modified: true,
		Settings: map[string]string{"CGO_ENABLED": "0", "-trimpath": "true"},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("%+v", f)
	}
}
