package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

type versionCommand struct {
	output
}

type versionFacts struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Run prints what was built.
func (c *versionCommand) Run(_ context.Context, p *process) error {
	facts := versionFacts{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			facts.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				facts.Commit = s.Value
			case "vcs.modified":
				facts.Modified = s.Value == "true"
			}
		}
	}
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "flowlane %s %s %s\n", facts.Version, facts.Go, facts.Platform)
	})
}
