package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"flowlane/internal/platform/catalog"
)

type catalogValidate struct {
	output

	Path string `arg:"" help:"FILE with one platform, or DIR with one *.yaml or *.yml file per platform."`
}

type validateFacts struct {
	Valid     bool               `json:"valid"`
	Platforms []string           `json:"platforms"`
	Services  int                `json:"services"`
	Actions   int                `json:"actions"`
	Mistakes  []*catalog.Mistake `json:"mistakes"`
}

// Run checks files beside the platforms that come with the program.
func (c *catalogValidate) Run(_ context.Context, p *process) error {
	info, err := os.Stat(c.Path)
	if err != nil {
		return err
	}
	options := catalog.Options{Files: []string{c.Path}}
	if info.IsDir() {
		options = catalog.Options{Dir: c.Path}
	}
	own, err := catalog.Load(catalog.Options{})
	if err != nil {
		return err
	}
	facts := validateFacts{Platforms: []string{}, Mistakes: []*catalog.Mistake{}}
	loaded, err := catalog.Load(options)
	if err != nil {
		if facts.Mistakes = catalog.Mistakes(err); len(facts.Mistakes) == 0 {
			return err
		}
		if err := c.print(p, facts, func(w io.Writer) {
			for _, m := range facts.Mistakes {
				fmt.Fprintln(w, m)
			}
		}); err != nil {
			return err
		}
		return fmt.Errorf("%d mistakes: correct them at the lines named above", len(facts.Mistakes))
	}
	facts.Valid = true
	for _, platform := range loaded.Platforms() {
		if _, shipped := own.Platform(platform.ID); !shipped {
			facts.Platforms = append(facts.Platforms, platform.ID)
		}
	}
	facts.Services = len(loaded.AllServices()) - len(own.AllServices())
	facts.Actions = len(loaded.AllActions()) - len(own.AllActions())
	return c.print(p, facts, func(w io.Writer) {
		fmt.Fprintf(w, "No mistakes: %d platforms, %d services, %d actions\n", len(facts.Platforms), facts.Services,
			facts.Actions)
	})
}
