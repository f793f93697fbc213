package vault

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// KEKVariable names the environment variable with the key-encryption key: 32 bytes in standard base64.
const KEKVariable = "FLOWLANE_KEK"

// OtherKEKVariable names the environment variable with a second one, while the first is being replaced.
const OtherKEKVariable = "FLOWLANE_OTHER_KEK"

const keyBytes = 32

// KEK is the key-encryption key, under which every other key of an installation is stored. It prints as [redacted].
type KEK struct{ secret }

// LoadKEK takes the key from value (of FLOWLANE_KEK) or, where that is empty, from the file at path, which nobody but
// its owner may read, or where that is somebody else, its group. The error says what to set; it never shows the key.
func LoadKEK(value, path string) (KEK, error) {
	if value != "" {
		return ParseKEK(value, KEKVariable)
	}
	if path == "" {
		return KEK{}, fmt.Errorf("no key-encryption key: set %s to 32 random bytes in base64, "+
			"for example from `openssl rand -base64 32`", KEKVariable)
	}
	if _, err := ParseKEK(path, ""); err == nil {
		return KEK{}, fmt.Errorf(
			"what should name the file with the key-encryption key is a key: put it into that file, or into %s",
			KEKVariable)
	}
	info, err := os.Stat(path)
	if err != nil {
		return KEK{}, fmt.Errorf("read the key-encryption key: set %s or create the file: %w", KEKVariable, err)
	}
	if info.Mode().Perm()&openTo(info) != 0 {
		return KEK{}, fmt.Errorf("the key-encryption key in %s can be read by others; run `chmod 600 %s`", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return KEK{}, fmt.Errorf("read the key-encryption key: %w", err)
	}
	return ParseKEK(string(text), path)
}

// openTo is the permissions that a file with the key must not have. Kubernetes and systemd hand over secrets in files
// of root's that the process may read as one of their group; its own files are for nobody else.
func openTo(info fs.FileInfo) fs.FileMode {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return 0o037
	}
	return 0o077
}

// LoadOrCreateKEK is LoadKEK for a data folder of its own: a file that is missing is made, readable by its owner only,
// with 32 bytes from random. Two processes that start together end with the same key.
func LoadOrCreateKEK(value, path string, random io.Reader) (KEK, error) {
	if value != "" || path == "" {
		return LoadKEK(value, path)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := createKEK(path, random); err != nil {
			return KEK{}, fmt.Errorf("create the key-encryption key %s: %w", path, err)
		}
	}
	return LoadKEK("", path)
}

// createKEK writes a whole file beside path and links it there, so that no reader sees half a key and the first wins.
func createKEK(path string, random io.Reader) error {
	var root [keyBytes]byte
	if _, err := io.ReadFull(random, root[:]); err != nil {
		return fmt.Errorf("draw random bytes: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".kek-*") // mode 0600
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // the link, if any, stays
	_, err = file.WriteString(base64.StdEncoding.EncodeToString(root[:]) + "\n")
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("put in place: %w", err)
	}
	return nil
}

// ParseKEK reads a key that came from source, which the error names; it never shows the key.
func ParseKEK(text, source string) (KEK, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) != keyBytes {
		// The decoder's error would quote the text.
		return KEK{}, fmt.Errorf("the key-encryption key in %s is not 32 bytes in standard base64 (44 characters)",
			source)
	}
	return KEK{secret{[keyBytes]byte(raw)}}, nil
}

// fingerprint names the key without giving it away.
func (k KEK) fingerprint() string { return hex.EncodeToString(k.derive("fingerprint")[:8]) }
