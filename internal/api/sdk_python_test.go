package api_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const pythonClient = "../../sdk/python"

// python is a Python that has what the client needs, and mypy. With CI set the lack of it is a failure.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import httpx, mypy").Run() == nil {
			return name
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("install Python 3.11 or newer with httpx and mypy")
	}
	t.Skip("not tested: install Python 3.11 or newer with httpx and mypy first")
	return ""
}

// runPython runs Python with the client in its path, as somebody would who has installed it, and returns what it prints.
func runPython(t *testing.T, env []string, args ...string) string {
	t.Helper()
	client, err := filepath.Abs(pythonClient)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), python(t), args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "PYTHONPATH="+client, "MYPYPATH="+client, "PYTHONDONTWRITEBYTECODE=1"), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, stderr.String())
	return string(out)
}

// TestSDK_Python runs the example of the Python client.
func TestSDK_Python(t *testing.T) {
	t.Parallel()
	python(t)
	example, err := filepath.Abs(filepath.Join(pythonClient, "example/main.py"))
	require.NoError(t, err)
	runExample(t, func(t *testing.T, env []string) string {
		t.Helper()
		return runPython(t, env, example)
	})
}

// TestSDK_Python_Units runs the tests that the Python client has of its own.
func TestSDK_Python_Units(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Abs(filepath.Join(pythonClient, "tests"))
	require.NoError(t, err)
	runPython(t, nil, "-m", "unittest", "discover", tests)
}

// TestSDK_Python_Types checks the types of the client, of its tests and of its example.
func TestSDK_Python_Types(t *testing.T) {
	t.Parallel()
	client, err := filepath.Abs(pythonClient)
	require.NoError(t, err)
	args := []string{"-m", "mypy", "--config-file", filepath.Join(client, "pyproject.toml")}
	for _, path := range []string{"flowlane", "tests/test_client.py", "example/main.py"} {
		args = append(args, filepath.Join(client, path))
	}
	runPython(t, nil, args...)
}
