package cli_test

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flowlane/docs"
	"flowlane/test/pgtest"
	"flowlane/test/servers"
)

// pages are those with commands, and what the test makes of them.
var pages = map[string]struct {
	// notRun is how many blocks are not run; each says in the page why.
	notRun int
	// needs are programs beside the usual ones.
	needs []string
	// tested elsewhere: TestTutorial runs it.
	elsewhere bool
}{
	"README.md":          {notRun: 2, needs: []string{"openssl"}},
	"docs/tutorial.md":   {notRun: 2, elsewhere: true},
	"docs/limits.md":     {},
	"docs/cookbook.md":   {},
	"docs/webhooks.md":   {needs: []string{"openssl"}},
	"docs/cli.md":        {notRun: 1},
	"docs/operations.md": {needs: []string{"psql", "pg_dump", "pg_restore", "createdb"}},
	"docs/deploy.md":     {notRun: 4, needs: []string{"openssl", "psql"}},
	"docs/scale.md":      {notRun: 2},
	"docs/simulator.md":  {},
}

// usual are programs that every page may use.
var usual = []string{"bash", "curl", "jq"}

//go:embed testdata/pages
var preparations embed.FS

// TestPages types in README.md and the pages of docs: the blocks sh of a page are run in one folder by one shell,
// beside a development server of their own. What the page says that a block prints, or that the receiver then gets,
// must come.
func TestPages(t *testing.T) {
	t.Parallel()
	for name, text := range pageTexts(t) {
		p := readPage(t, name, text)
		known, ok := pages[name]
		if !ok && len(p.blocks)+len(p.left) > 0 {
			t.Errorf("%s has commands, and the table of this test does not have it", name)
		}
		if ok && len(p.left) > known.notRun {
			t.Errorf("%s: %d blocks are not run, more than the %d that the table allows:\n%s", name, len(p.left),
				known.notRun, strings.Join(p.left, "\n"))
		}
		if ok {
			t.Logf("%s: %d blocks, %d are not run", name, len(p.blocks)+len(p.left), len(p.left))
		}
		if len(p.blocks) == 0 || known.elsewhere {
			continue
		}
		t.Run(strings.TrimPrefix(name, "docs/"), func(t *testing.T) {
			t.Parallel()
			for _, need := range append(slices.Clone(usual), known.needs...) {
				if _, err := exec.LookPath(need); err == nil {
					continue
				}
				servers.Missing(t, "install %s", need)
			}
			p.run(t)
		})
	}
}

// TestPages_Synopses: what a page shows of how a command is written has no flag that the command does not have.
func TestPages_Synopses(t *testing.T) {
	t.Parallel()
	synopsis, flag := regexp.MustCompile(`^flowlane ([a-z]+(?: [a-z]+)?)`), regexp.MustCompile(`--[a-z-]+`)
	count := 0
	for name, text := range pageTexts(t) {
		for _, line := range readPage(t, name, text).synopses {
			m := synopsis.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: %q shows no command", name, line)
				continue
			}
			help, err := program(t, nil, append(strings.Fields(m[1]), "--help")...).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %q: %v\n%s", name, line, err, help)
			}
			for _, f := range flag.FindAllString(line, -1) {
				if !regexp.MustCompile(f + `[ =,]`).Match(help) {
					t.Errorf("%s: %q: the command has no %s", name, line, f)
				}
			}
			count++
		}
	}
	if count < 8 {
		t.Errorf("there are only %d", count)
	}
}

// pageTexts are README.md and all pages of docs.
func pageTexts(t *testing.T) map[string]string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"README.md": string(readme)}
	if err := fs.WalkDir(docs.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		text, err := docs.Files.ReadFile(name)
		out["docs/"+name] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// run runs the page.
func (p *page) run(t *testing.T) {
	t.Helper()
	w := newWorkshop(t)
	for name, text := range p.flows {
		w.write(t, name+".yaml", text)
	}
	prepare, err := preparations.ReadFile("testdata/pages/" + strings.TrimSuffix(filepath.Base(p.name), ".md") + ".sh")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	stdout, stderr, err := w.shell(t, p.script(string(prepare)))
	printed := strings.Split(stdout, blockMark+"\n")[1:]
	if err != nil {
		said := strings.Split(stderr, blockMark+"\n")
		failed := "what prepares it"
		if len(printed) > 0 {
			failed = p.blocks[len(printed)-1].text
		}
		t.Fatalf("%s: %v in\n%s\nIt prints\n%s\nand\n%s", p.name, err, failed, stdout, said[len(said)-1])
	}
	came := w.calls(t)
	for i, b := range p.blocks {
		if b.answer != "" {
			compareAnswer(t, p.name, b, printed[i])
		}
		if b.calls != "" {
			want := strings.Split(strings.TrimSpace(b.calls), "\n")
			got := came[:min(len(want), len(came))]
			came = came[len(got):]
			compareCalls(t, p.name, want, got)
		}
	}
}

func compareAnswer(t *testing.T, name string, b block, printed string) {
	t.Helper()
	var want any
	if err := json.Unmarshal([]byte(b.answer), &want); err != nil {
		t.Errorf("%s: %v in\n%s", name, err, b.answer)
		return
	}
	got, ok := lastJSON(printed)
	if !ok {
		t.Errorf("%s: no JSON comes of\n%s\nbut\n%s", name, b.text, printed)
	} else if d := differs(want, got, "answer"); d != "" {
		t.Errorf("%s: %s, after\n%s\nwhich prints\n%s", name, d, b.text, printed)
	}
}

// compareCalls compares lines of the receiver, in any order; ... stands for anything.
func compareCalls(t *testing.T, name string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.EqualFunc(want, got, func(w, g string) bool {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(w), regexp.QuoteMeta("..."), ".*")
		return regexp.MustCompile("^" + pattern + "$").MatchString(g)
	}) {
		t.Errorf("%s: the receiver got %q, not %q", name, got, want)
	}
}

// workshop is a folder in which commands are typed, with a development server and a receiver beside it.
type workshop struct {
	folder, receiver string
	dev              devFacts
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	w := &workshop{folder: t.TempDir()}
	launch(t, nil, &w.dev, "dev", "--data-dir", filepath.Join(w.folder, ".flowlane"), "--listen", "127.0.0.1:0")
	took := program(t, nil, "receiver", "--listen", "127.0.0.1:0")
	log, err := os.Create(filepath.Join(w.folder, "receiver.log"))
	if err != nil {
		t.Fatal(err)
	}
	took.Stdout = log
	if err := took.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = took.Process.Kill()
		_ = took.Wait()
		_ = log.Close()
	})
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	for w.receiver == "" {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		w.receiver = address.FindString(string(text))
		time.Sleep(10 * time.Millisecond)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(w.folder, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(w.folder, "bin", "flowlane")); err != nil {
		t.Fatal(err)
	}
	return w
}

// calls are what the receiver got so far.
func (w *workshop) calls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.folder, "receiver.log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
}

// write writes a file that a page speaks of.
func (w *workshop) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.folder, name), []byte(w.here(text)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// here is a text with the addresses of this workshop instead of those that pages use.
func (w *workshop) here(text string) string {
	return strings.NewReplacer(
		"127.0.0.1:3000", w.receiver, exampleReceiver, "http://"+w.receiver, "https://flows.example.com", w.dev.URL,
	).Replace(text)
}

// shell runs a script. await_calls N waits until the receiver has got N calls more.
func (w *workshop) shell(t *testing.T, script string) (stdout, stderr string, err error) {
	t.Helper()
	dsn, _ := pgtest.NewDatabase(t)
	awaiting := fmt.Sprintf(`awaited=1
await_calls() {
	awaited=$((awaited + $1))
	for _ in $(seq 600); do
		[ "$(wc -l <'%s')" -lt "$awaited" ] || return 0
		sleep 0.1
	done
	echo "the receiver did not get all calls" >&2
	return 1
}
`, filepath.Join(w.folder, "receiver.log"))
	script = strings.ReplaceAll(script, "postgres://user:password@host:5432/flowlane", dsn)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", awaiting+w.here(script))
	cmd.Dir = w.folder
	cmd.Stdin = strings.NewReader(w.dev.APIKey + "\n") // what login asks for
	cmd.Env = []string{
		asProgram + "=1", "HOME=" + w.folder, "PATH=" + filepath.Join(w.folder, "bin") + ":" + os.Getenv("PATH"),
		"FLOWLANE_OPERATOR_LISTEN=127.0.0.1:0",
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}
