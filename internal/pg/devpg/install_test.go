package devpg

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// t.Setenv forbids parallel tests.
func TestStart_NothingInstalled(t *testing.T) {
	b := setup(t)
	b.opts.search = func() []string { return nil }
	t.Setenv("PATH", "")
	_, err := Start(b.ctx, b.opts)
	if err == nil {
		t.Fatal("it started")
	}
	for _, want := range []string{"apt install postgresql", "npm", "@embedded-postgres/", "DATABASE_URL"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	// The folder is free again.
	if _, err := Start(b.ctx, b.opts); err == nil || strings.Contains(err.Error(), "another process") {
		t.Fatalf("the second error is %v", err)
	}
}

// fakeInstall makes programs that only tell their version.
func fakeInstall(t *testing.T, version string) string {
	t.Helper()
	dir := folder(t, 0o755)
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
		//nolint:gosec // a program
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestChoose(t *testing.T) {
	t.Parallel()
	old, mid, recent := fakeInstall(t, "14.9"), fakeInstall(t, "16.4 (Debian 16.4-1)"), fakeInstall(t, "18beta1")
	for name, c := range map[string]struct {
		data  []string
		found []string
		want  int
	}{
		"Newest":             {nil, []string{mid, recent, old}, 18},
		"TheOneWithData":     {[]string{"pg16"}, []string{recent, mid}, 16},
		"NewestWithData":     {[]string{"pg16", "pg18"}, []string{mid, recent}, 18},
		"DataOfAnother":      {[]string{"pg15"}, []string{mid, recent}, 18},
		"TooOldIsPassedOver": {[]string{"pg14"}, []string{old, mid}, 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.opts.search = func() []string { return append(c.found, "/no/such/folder") }
			for _, dir := range c.data {
				if err := os.MkdirAll(filepath.Join(b.opts.DataDir, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			got, err := choose(b.ctx, b.opts)
			if err != nil || got.major != c.want {
				t.Fatalf("chose %d (%v), want %d", got.major, err, c.want)
			}
			if lost := name == "DataOfAnother" || name == "TooOldIsPassedOver"; lost != strings.Contains(
				b.said.String(), "not installed") {
				t.Errorf("said %q", b.said)
			}
		})
	}
}

func TestElsewhere_OfTemporaryFolders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.fallback = nil
	self, err := runnerOf(filepath.Dir(b.opts.DataDir))
	if os.Geteuid() == 0 {
		self, err = defaultRunner()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(b.opts.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := self.elsewhere(b.opts)
	if err != nil || !within(first, os.TempDir()) {
		t.Fatalf("files of a temporary folder went to %s: %v", first, err)
	}
	second, err := self.elsewhere(b.opts)
	if err != nil || second == first {
		t.Fatalf("%s was used again: %v", first, err)
	}
	if err := os.RemoveAll(b.opts.DataDir); err != nil {
		t.Fatal(err)
	}
	sweep(filepath.Dir(first))
	for _, dir := range []string{first, second} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s outlives its data folder", dir)
		}
	}
}

func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for name, content := range files {
		head := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o644}
		if err := archive.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t, 0o755), "programs")
	err := unpack(tarball(t, map[string]string{
		"package/package.json":            "{}",
		"package/native/bin/postgres":     "program",
		"package/native/lib/libx.so.1.2":  "library",
		"package/native/../../escape":     "bad",
		"package/native/pg-symlinks.json": `[{"source":"native/lib/libx.so.1.2","target":"native/lib/libx.so.1"},{"source":"native/lib/libx.so.1.2","target":"native/lib/sub/libx.so"}]`,
	}), dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "bin", "postgres")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the program: %v, %v", info, err)
	}
	for _, link := range []string{"libx.so.1", "sub/libx.so"} {
		if content, err := os.ReadFile(filepath.Join(dir, "lib", link)); err != nil || string(content) != "library" {
			t.Errorf("the link %s: %q, %v", link, content, err)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); len(found) != 1 {
		t.Errorf("files outside the folder: %v", found)
	}
}

func TestUnpack_LinkThatLeaves(t *testing.T) {
	t.Parallel()
	bad := tarball(t, map[string]string{
		"package/native/pg-symlinks.json": `[{"source":"native/../../../etc/passwd","target":"native/x"}]`})
	if err := unpack(bad, filepath.Join(folder(t, 0o755), "programs")); err == nil {
		t.Fatal("it was made")
	}
}

// TestDownload_Real needs a package registry.
func TestDownload_Real(t *testing.T) {
	t.Parallel()
	if os.Getenv("FLOWLANE_TEST_DOWNLOAD") == "" {
		t.Skip("set FLOWLANE_TEST_DOWNLOAD=1 to download Postgres")
	}
	b := setup(t)
	b.opts.search = func() []string { return nil }
	server := b.start()
	if got := b.query(server.DSN(), "SHOW server_version"); !strings.HasPrefix(got, "18.") {
		t.Fatalf("Postgres %s", got)
	}
	b.stop(server)
	b.start()
}
