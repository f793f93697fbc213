package provider

import (
	"bytes"
	"fmt"
	"log/slog"
)

// printed gives every text that a secret might slip into.
func printed(s Secret) []string {
	type inner struct{ s Secret }
	type outer struct{ Shown Secret }
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "inner", inner{s}, "outer", outer{s})
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "inner", inner{s}, "outer", outer{s})
	out := []string{log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		out = append(out, fmt.Sprintf(verb, s), fmt.Sprintf(verb, &s), fmt.Sprintf(verb, inner{s}),
			fmt.Sprintf(verb, outer{s}), fmt.Sprintf(verb, []Secret{s}))
	}
	return out
}
