package api_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/servers"
)

const pythonClient = "../../sdk/python"

// python is a Python that has what builds, installs, runs and checks the client. With CI set the lack of it is a
// failure.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), name, "-c",
			"import build, ensurepip, httpx, mypy, setuptools, wheel").Run() == nil {
			return name
		}
	}
	servers.Missing(t, "install Python 3.11 or newer with httpx, mypy, build, setuptools, wheel and venv")
	return ""
}

// pythonPackage is the Python client as it would be published, and an environment into which it was installed.
type pythonPackage struct{ sdist, wheel, environment string }

// installPython builds the client as its README says, and installs the wheel into an empty environment. That sees the
// packages of the system, because httpx must come from somewhere without a registry.
func installPython(t *testing.T) pythonPackage {
	t.Helper()
	interpreter, dir := python(t), t.TempDir()
	source := filepath.Join(dir, "source") // a copy, because a build writes into its source
	require.NoError(t, os.CopyFS(source, os.DirFS(pythonClient)))
	require.NoError(t, os.RemoveAll(filepath.Join(source, "dist")))
	execute(t, source, nil, interpreter, "-m", "build", "--no-isolation")
	built := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(source, "dist", pattern))
		require.NoError(t, err)
		require.Len(t, found, 1, pattern)
		return found[0]
	}
	p := pythonPackage{sdist: built("*.tar.gz"), wheel: built("*.whl"), environment: filepath.Join(dir, "environment")}
	execute(t, dir, nil, interpreter, "-m", "venv", "--system-site-packages", p.environment)
	p.run(t, nil, "-m", "pip", "install", "--no-index", p.wheel)
	return p
}

// run runs Python where the client is installed, far from its source, and returns what it prints.
func (p pythonPackage) run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	env = append([]string{"PYTHONPATH=", "PYTHONDONTWRITEBYTECODE=1"}, env...)
	return execute(t, t.TempDir(), env, filepath.Join(p.environment, "bin/python"), args...)
}

// execute runs a program in a folder and returns what it prints.
func execute(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s%s", name, args, out, stderr.String())
	return string(out)
}

// TestSDK_Python builds and installs the Python client, and uses it as somebody would who has it from a registry.
func TestSDK_Python(t *testing.T) {
	t.Parallel()
	p := installPython(t)
	client, err := filepath.Abs(pythonClient)
	require.NoError(t, err)
	example := filepath.Join(client, "example/main.py")
	t.Run("Example", func(t *testing.T) {
		t.Parallel()
		runExample(t, func(t *testing.T, env []string) string {
			t.Helper()
			return p.run(t, env, example)
		})
	})
	t.Run("Package", func(t *testing.T) {
		t.Parallel()
		p.check(t)
	})
	t.Run("Units", func(t *testing.T) { // the tests that it has of its own
		t.Parallel()
		p.run(t, nil, "-m", "unittest", "discover", filepath.Join(client, "tests"))
	})
	// of the client as it is installed, and of its tests and its example, which use them
	t.Run("Types", func(t *testing.T) {
		t.Parallel()
		mypy := []string{"-m", "mypy", "--config-file", filepath.Join(client, "pyproject.toml")}
		p.run(t, nil, append(mypy, "--package", "flowlane")...)
		p.run(t, nil, append(mypy, filepath.Join(client, "tests/test_client.py"), example)...)
	})
}

// check looks at what would be published, and at what pip has made of it.
func (p pythonPackage) check(t *testing.T) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(pythonClient, "flowlane/*.*"))
	require.NoError(t, err)
	files := make([]string, len(sources))
	for i, source := range sources {
		files[i] = path.Join("flowlane", filepath.Base(source))
	}
	assert.Contains(t, files, "flowlane/py.typed")
	sdist := slices.Collect(maps.Keys(tarred(t, p.sdist)))
	for _, name := range append([]string{"LICENSE", "README.md", "pyproject.toml"}, files...) {
		assert.Contains(t, sdist, "flowlane-0.1.0/"+name)
	}

	wheel := zipped(t, p.wheel)
	const info = "flowlane-0.1.0.dist-info/"
	about := []string{info + "LICENSE", info + "METADATA", info + "RECORD", info + "WHEEL", info + "top_level.txt"}
	assert.ElementsMatch(t, slices.Concat(files, about), slices.Collect(maps.Keys(wheel)))
	own, err := os.ReadFile("../../LICENSE")
	require.NoError(t, err)
	assert.Equal(t, string(own), wheel[info+"LICENSE"], "sdk/python/LICENSE is a copy of LICENSE")
	metadata := strings.Split(wheel[info+"METADATA"], "\n")
	for _, line := range []string{
		"Name: flowlane", "Version: 0.1.0", "License: Apache-2.0", "Requires-Python: >=3.11",
		"Description-Content-Type: text/markdown", "# Python client",
	} {
		assert.Contains(t, metadata, line)
	}
	assert.Contains(t, wheel[info+"METADATA"], "\nRequires-Dist: httpx")

	out := p.run(t, nil, "-c",
		"import flowlane, importlib.metadata as m; print(flowlane.__file__, m.version('flowlane'))")
	assert.Regexp(t, "^"+p.environment+`/lib/python3\.\d+/site-packages/flowlane/__init__\.py 0\.1\.0\n$`, out)
}

func zipped(t *testing.T, name string) map[string]string {
	t.Helper()
	archive, err := zip.OpenReader(name)
	require.NoError(t, err)
	defer func() { _ = archive.Close() }()
	files := map[string]string{}
	for _, f := range archive.File {
		r, err := f.Open()
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		files[f.Name] = string(text)
	}
	return files
}

func tarred(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	plain, err := gzip.NewReader(file)
	require.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[header.Name] = string(text)
	}
}
