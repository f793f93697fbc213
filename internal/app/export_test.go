package app

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Housekeep is one turn of housekeeping.
func (a *App) Housekeep(ctx context.Context) error {
	_, err := a.housekeep(ctx, nil)
	return err
}

// Metrics are the names of all metrics of a process that are ours.
func (a *App) Metrics() (names []string) {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		a.metrics.registry.Describe(descs)
	}()
	for d := range descs {
		if _, rest, ok := strings.Cut(d.String(), `fqName: "flowlane_`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			names = append(names, "flowlane_"+name)
		}
	}
	return names
}
