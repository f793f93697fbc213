package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
)

type envCommand struct {
	folder
	output
}

// Run prints the settings of the development server.
func (c *envCommand) Run(_ context.Context, p *process) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	if len(settings) == 0 {
		return fmt.Errorf("%s is not there: start the development server with `flowlane dev`, "+
			"or name its folder with --data-dir", c.envFile())
	}
	return c.print(p, settings, func(w io.Writer) {
		for _, name := range settingNames {
			if settings[name] == "" {
				continue
			}
			fmt.Fprintf(w, "export %s='%s'\n", name, strings.ReplaceAll(settings[name], "'", `'\''`))
		}
	})
}
