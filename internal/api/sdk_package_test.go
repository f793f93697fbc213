package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/servers"
)

const typeScript = "../../sdk/typescript"

// tarball packs the TypeScript client once, as `npm publish` would, and returns the path of what would be published. It
// lies in the client's dist, which is made anew each time.
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
		servers.Missing(t, "run `npm ci` in sdk/typescript, or `make generate`, first")
	}
	file, err := tarball()
	require.NoError(t, err)
	dir := t.TempDir()
	write(t, dir, "package.json", `{"private":true}`)
	install := exec.CommandContext(t.Context(), "npm", "install", "--offline", "--no-audit", "--no-fund", "--silent",
		file)
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
  const client = new flow.Flowlane({ url: process.env.FLOWLANE_URL, apiKey: process.env.FLOWLANE_API_KEY });
  const me = await client.account.getMe();
  process.stdout.write(me.organization.name);
})();
`
)

// TestSDK_TypeScript_Package installs what `npm pack` gives into an empty project, and uses it there without a build:
// as a module, as CommonJS, and from TypeScript as both.
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
		"export const status = async (client: flow.Flowlane): Promise<flow.BatchStatus> =>\n" +
		"  (await client.batches.get({ path: { batch_id: 'b' } })).status;\n"
	write(t, dir, "typed.mts", typed)
	write(t, dir, "typed.cts", typed)
	compiler, err := filepath.Abs(filepath.Join(typeScript, "node_modules/typescript/bin/tsc"))
	require.NoError(t, err)
	for _, module := range []string{"nodenext", "preserve"} {
		node(t, nil, compiler, "--noEmit", "--strict", "--module", module, "--target", "es2022", "--lib", "es2022,dom",
			filepath.Join(dir, "typed.mts"), filepath.Join(dir, "typed.cts"))
	}
}

const filesProgram = asModule + `
const client = new flow.Flowlane({ url: process.env.FLOWLANE_URL, apiKey: process.env.FLOWLANE_API_KEY });
const seen = [];
const { receive_url, signing_secret } = await client.webhooks.create({
  body: { definition_id: process.env.DEFINITION, description: 'd', provider: 'standard', mode: 'trigger' },
});
const body = '{"a":1}';
const headers = await flow.signWebhook(signing_secret, body);
const address = process.env.FLOWLANE_URL + '/v1' + receive_url;
seen.push((await fetch(address, { method: 'POST', body, headers })).status);
await flow.verifyWebhook(signing_secret, body, headers);
await flow.verifyWebhook(signing_secret, new TextEncoder().encode(body), new Headers(headers));
for (const [what, options] of [['{"a":2}'], [body, { now: new Date(Date.now() + 301e3) }]]) {
  seen.push(await flow.verifyWebhook(signing_secret, what, headers, options).catch((e) => e instanceof flow.SignatureError));
}
const lines = new Blob(['{"id":"a","n":12345678901234567890}\n\n{"id":"b"}\n']);
const rows = new File(['\uFEFFid,text\r\na,"x,""y""\nz"\r\n,\r\n'], 'rows.csv');
const sets = [await client.records.upload(lines), await client.records.upload(rows)];
seen.push(sets.map((set) => set.received_count));
const before = (await client.records.list({})).items.length;
const bad = new Blob(['{"id":1}\n[2]\n']);
seen.push(await client.records.upload(bad, { chunkSize: 1 }).catch((e) => e.message));
seen.push((await client.records.list({})).items.length - before);
for (const set of sets) {
  await client.definitions.trigger({ path: { definition_id: process.env.DEFINITION }, body: { record_set_id: set.id } });
}
const refused = await client.definitions.trigger({ path: { definition_id: process.env.DEFINITION }, body: { input_data: 1 } }).catch((e) => e);
seen.push(refused instanceof flow.ValidationError, refused.code, refused.fields.map((f) => f.loc.join('.')));
process.stdout.write(JSON.stringify(seen));
`

// TestSDK_TypeScript_Files signs and verifies messages, uploads files, and looks at the fields of an error.
func TestSDK_TypeScript_Files(t *testing.T) {
	t.Parallel()
	dir := project(t)
	s := serveStack(t, false)
	definition := s.define(uploadSteps)
	write(t, dir, "files.mjs", filesProgram)
	env := []string{"FLOWLANE_URL=" + s.URL, "FLOWLANE_API_KEY=" + s.Key, "DEFINITION=" + definition}
	s.checkFiles(string(node(t, env, filepath.Join(dir, "files.mjs"))))
}

// checkFiles compares what filesProgram printed with what happened.
func (s *stack) checkFiles(out string) {
	s.t.Helper()
	assert.JSONEq(s.t, `[202,true,true,[2,2],"Line 2 is no JSON object: [2]",0,true,"validation_failed",["body.input_data"]]`, out)
	var inputs []string
	for _, job := range s.pages("/flows/jobs", 10) {
		var read struct {
			TriggerType string          `json:"trigger_type"`
			InputData   json.RawMessage `json:"input_data"`
		}
		require.NoError(s.t, json.Unmarshal(job, &read))
		if read.TriggerType == "api_call" {
			inputs = append(inputs, string(read.InputData))
		}
	}
	assert.ElementsMatch(s.t, []string{
		`{"id":"a","n":12345678901234567890}`, `{"id":"b"}`, `{"id":"a","text":"x,\"y\"\nz"}`, `{"id":"","text":""}`,
	}, inputs)
}
