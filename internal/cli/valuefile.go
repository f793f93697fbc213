package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// fileSuffix behind the name of a variable is that of one which names a file with the value.
const fileSuffix = "_FILE"

// valueFiles gives each flag that has a variable the content of the file that the variable with fileSuffix names:
// Kubernetes, systemd and Docker hand over secrets in files, where no list of processes shows them.
func valueFiles(c *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		path := os.Getenv(name + fileSuffix)
		if path == "" || ownFlag(c, name+fileSuffix) {
			continue
		}
		if os.Getenv(name) != "" {
			return nil, fmt.Errorf("%s and %s%s are both set: keep one", name, name, fileSuffix)
		}
		text, err := os.ReadFile(path) //nolint:gosec // the operator names it
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", name, fileSuffix, err)
		}
		value := strings.TrimRight(string(text), "\r\n")
		if value == "" {
			return nil, fmt.Errorf("%s%s: %s is empty", name, fileSuffix, path)
		}
		return value, nil
	}
	return nil, nil
}

// ownFlag reports whether a variable is that of a flag, such as FLOWLANE_KEK_FILE.
func ownFlag(c *kong.Context, name string) bool {
	return slices.ContainsFunc(c.Flags(), func(f *kong.Flag) bool { return slices.Contains(f.Envs, name) })
}
