package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCommand struct {
	output
}

type versionFacts struct {
	Version string `json:"version"`
	// Commit and CommitTime are empty where the program was built outside of its repository.
	Commit     string `json:"commit,omitempty"`
	CommitTime string `json:"commit_time,omitempty"`
	Modified   bool   `json:"modified,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	// Settings are those of the build, as the go command names them.
	Settings map[string]string `json:"settings"`
}

// version is that of this program.
func version() string {
	facts := versionFacts{Version: "(devel)"}
	if info, ok := debug.ReadBuildInfo(); ok {
		facts.read(info)
	}
	return facts.Version
}

// Run prints what was built, and how.
func (c *versionCommand) Run(_ context.Context, p *process) error {
	facts := versionFacts{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		facts.read(info)
	}
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "flowlane %s %s %s\n", facts.Version, facts.Go, facts.Platform)
	})
}

// read takes over what the go command has written into the program.
func (f *versionFacts) read(info *debug.BuildInfo) {
	if info.Main.Version != "" {
		f.Version = info.Main.Version
	}
	f.Settings = map[string]string{}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			f.Commit = s.Value
		case "vcs.time":
			f.CommitTime = s.Value
		case "vcs.modified":
			f.Modified = s.Value == "true"
		}
		if !strings.HasPrefix(s.Key, "vcs") {
			f.Settings[s.Key] = s.Value
		}
	}
}
