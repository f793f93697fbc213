package api_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const typeScript = "../../sdk/typescript"

// tarball packs the TypeScript client once, as `npm publish` would, and returns the path of what would be published. It lies
// in the client's dist, which is made anew each time.
var tarball = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("npm", "pack", "--silent", "--pack-destination", "dist")
	cmd.Dir = typeScript
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack: %w\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(typeScript, "dist", "*.tgz"))
	if len(found) != 1 {
		return "", fmt.Errorf("npm pack left %v: %w", found, err)
	}
	path, err := filepath.Abs(found[0])
	if err != nil {
		return "", fmt.Errorf("tarball: %w", err)
	}
	return path, nil
})

// project is an empty folder in which somebody has run `npm install` with the TypeScript client. It needs what `npm ci`
// installs in sdk/typescript to pack it; with CI set the lack of it is a failure.
func project(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(typeScript, "node_modules", "typescript")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("run `npm ci` in sdk/typescript")
		}
		t.Skip("not tested: run `npm ci` in sdk/typescript, or `make generate`, first")
	}
	file, err := tarball()
	require.NoError(t, err)
	dir := t.TempDir()
	write(t, dir, "package.json", `{"private":true}`)
	install := exec.CommandContext(t.Context(), "npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", file)
	install.Dir = dir
	out, err := install.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

const (
	asModule = `import * as flow from '@flowlane/client';`
	asScript = `const flow = require('@flowlane/client');`
	askWho   = `
(async () => {
  const client = flow.connect({ url: process.env.FLOWLANE_URL, apiKey: process.env.FLOWLANE_API_KEY });
  const { data } = await flow.getMe({ client, throwOnError: true });
  process.stdout.write(data.organization.name);
})();
`
)

// TestSDK_TypeScript_Package installs what `npm pack` gives into an empty project, and uses it there without a build: as a
// module, as CommonJS, and from TypeScript as both.
func TestSDK_TypeScript_Package(t *testing.T) {
	t.Parallel()
	dir := project(t)
	own, err := os.ReadFile("../../LICENSE")
	require.NoError(t, err)
	shipped, err := os.ReadFile(filepath.Join(dir, "node_modules/@flowlane/client/LICENSE"))
	require.NoError(t, err)
	assert.Equal(t, string(own), string(shipped), "sdk/typescript/LICENSE is a copy of LICENSE")
	assert.FileExists(t, filepath.Join(dir, "node_modules/@flowlane/client/README.md"))
	assert.NoDirExists(t, filepath.Join(dir, "node_modules/@flowlane/client/src"))

	s := serveStack(t, false)
	env := []string{"FLOWLANE_URL=" + s.URL, "FLOWLANE_API_KEY=" + s.Key}
	for name, program := range map[string]string{"module.mjs": asModule + askWho, "script.cjs": asScript + askWho} {
		write(t, dir, name, program)
		assert.Equal(t, "Acme", string(node(t, env, filepath.Join(dir, name))), name)
	}

	const typed = "import * as flow from '@flowlane/client';\n" +
		"export const status: Promise<flow.BatchStatus> =\n" +
		"  flow.getBatch({ path: { batch_id: 'b' }, throwOnError: true }).then(({ data }) => data.status);\n"
	write(t, dir, "typed.mts", typed)
	write(t, dir, "typed.cts", typed)
	compiler, err := filepath.Abs(filepath.Join(typeScript, "node_modules/typescript/bin/tsc"))
	require.NoError(t, err)
	for _, module := range []string{"nodenext", "preserve"} {
		node(t, nil, compiler, "--noEmit", "--strict", "--module", module, "--target", "es2022", "--lib", "es2022,dom",
			filepath.Join(dir, "typed.mts"), filepath.Join(dir, "typed.cts"))
	}
}
