package upload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Checkpoint is a small file that says how far the upload of one file to one server came. All methods take a nil
// Checkpoint, which remembers nothing.
type Checkpoint struct{ path string }

// checkpointFile is what the file holds.
type checkpointFile struct {
	RecordSetID string `json:"record_set_id"`
	ChunkSize   int    `json:"chunk_size"`
	// Done are the chunks that the server has confirmed.
	Done []int `json:"done"`
}

// Remember returns the memory, in dir, for a file as it is now and what it is uploaded for: one that was changed is
// another upload. An empty dir means the user's cache folder.
func Remember(dir, server, file, purpose string) (*Checkpoint, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", file, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("look at the file: %w", err)
	}
	if dir == "" {
		if dir, err = os.UserCacheDir(); err != nil {
			dir = os.TempDir()
		}
		dir = filepath.Join(dir, "flowlane", "uploads")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder that remembers uploads: %w", err)
	}
	key := fmt.Sprintf("%s\n%s\n%d\n%d\n%s", server, path, info.Size(), info.ModTime().UnixNano(), purpose)
	sum := sha256.Sum256([]byte(key))
	return &Checkpoint{path: filepath.Join(dir, hex.EncodeToString(sum[:12])+".json")}, nil
}

// load returns what is remembered; nothing when the file is not there or makes no sense.
func (m *Checkpoint) load() checkpointFile {
	if m == nil {
		return checkpointFile{}
	}
	text, err := os.ReadFile(m.path)
	if err != nil {
		return checkpointFile{}
	}
	var r checkpointFile
	if json.Unmarshal(text, &r) != nil || r.ChunkSize < 1 {
		return checkpointFile{}
	}
	return r
}

// save replaces what is remembered, whole or not at all.
func (m *Checkpoint) save(setID string, chunkSize int, done map[int]bool) error {
	if m == nil {
		return nil
	}
	text, err := json.Marshal(checkpointFile{setID, chunkSize, slices.Sorted(maps.Keys(done))})
	if err != nil {
		return fmt.Errorf("remember the upload: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(m.path), ".upload-*")
	if err != nil {
		return fmt.Errorf("remember the upload: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), m.path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("remember the upload: %w", err)
	}
	return nil
}

// Forget removes what is remembered: the upload is over, or cannot go on.
func (m *Checkpoint) Forget() {
	if m != nil {
		_ = os.Remove(m.path)
	}
}
