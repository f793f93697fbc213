package orgexport

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/gzip"
)

// archive is a compressed tar under way. A file of a tar begins with its size, so that each is laid aside before it is
// written.
type archive struct {
	zip *gzip.Writer
	tar *tar.Writer
	// dir is where large files are laid aside.
	dir string
	at  time.Time
	// files is what the manifest says of the files: as many lines as there are files, and no more of it in memory than
	// of any file.
	files spool
	total Total
	// progress is called now and then with how many rows there are.
	progress func(rows int64)
}

// Total is how much an archive has.
type Total struct {
	// Files counts those beside the manifest, Rows their lines, Bytes their text before it is compressed.
	Files, Rows, Bytes int64
}

// fileFacts is what the manifest says of a file.
type fileFacts struct {
	Name  string `json:"name"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
}

func newArchive(ctx context.Context, w io.Writer, dir string, at time.Time) *archive {
	a := &archive{zip: gzip.NewWriter(&interruptible{ctx, w}), dir: dir, at: at, files: spool{dir: dir}}
	a.tar = tar.NewWriter(a.zip)
	return a
}

// interruptible fails once the context is done: to copy a large file takes long, and asks nobody.
type interruptible struct {
	ctx context.Context //nolint:containedctx // an io.Writer has no other place for it
	w   io.Writer
}

func (i *interruptible) Write(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // who stops it knows
	}
	return i.w.Write(p) //nolint:wrapcheck // names the file
}

// lines adds a file of lines, of which fill says whether it is wanted.
func (a *archive) lines(name string, fill func(w *spool) (bool, error)) error {
	s := spool{dir: a.dir, progress: func(lines int64) { a.progress(a.total.Rows + lines) }}
	defer s.close()
	if wanted, err := fill(&s); err != nil || !wanted {
		return err
	}
	facts, err := json.Marshal(fileFacts{name, s.lines, s.size})
	if err != nil {
		return err //nolint:wrapcheck // texts and numbers
	}
	if a.total.Files > 0 {
		facts = append([]byte(",\n"), facts...)
	}
	if _, err := a.files.Write(facts); err != nil {
		return err
	}
	a.total.Files, a.total.Rows, a.total.Bytes = a.total.Files+1, a.total.Rows+s.lines, a.total.Bytes+s.size
	return a.add(name, &s)
}

func (a *archive) add(name string, s *spool) error {
	err := a.tar.WriteHeader(&tar.Header{Name: name, Size: s.size, Mode: 0o600, ModTime: a.at.Truncate(time.Second)})
	if err == nil {
		err = s.copyTo(a.tar)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// close writes manifest.json, with what head and tail say beside the files, and ends the archive.
func (a *archive) close(head, tail any) error {
	s := spool{dir: a.dir}
	defer s.close()
	var text [2][]byte
	for i, v := range []any{head, tail} {
		var err error
		if text[i], err = json.MarshalIndent(v, "", " "); err != nil {
			return err //nolint:wrapcheck // texts and numbers
		}
	}
	_, err := fmt.Fprintf(&s, "%s,\n \"files\": [\n", bytes.TrimSuffix(text[0], []byte("\n}")))
	if err == nil {
		err = a.files.copyTo(&s)
	}
	if err == nil {
		_, err = fmt.Fprintf(&s, "\n ],%s\n", bytes.TrimPrefix(text[1], []byte("{")))
	}
	if err == nil {
		err = a.add("manifest.json", &s)
	}
	if err == nil {
		err = a.tar.Close()
	}
	if err == nil {
		err = a.zip.Close()
	}
	return err //nolint:wrapcheck // names the file
}

// spoolMemory is how much of a file is laid aside in memory.
const spoolMemory = 1 << 20

// spool lays text aside: in memory what is small, in a file the rest. The zero value with a folder is empty.
type spool struct {
	dir   string
	small []byte
	file  *os.File
	w     *bufio.Writer
	// size is in bytes, lines how many ends of lines there are.
	size, lines int64
	// progress is called every tellEvery lines, with how many there are; nil for nobody.
	progress func(lines int64)
}

const tellEvery = 1 << 12

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	before := s.lines
	s.size, s.lines = s.size+int64(len(p)), s.lines+int64(bytes.Count(p, []byte{'\n'}))
	if s.progress != nil && s.lines/tellEvery != before/tellEvery {
		s.progress(s.lines)
	}
	if s.file == nil && len(s.small)+len(p) <= spoolMemory {
		s.small = append(s.small, p...)
		return len(p), nil
	}
	if s.file == nil {
		file, err := os.CreateTemp(s.dir, ".flowlane-export-*") // mode 0600
		if err != nil {
			return 0, err //nolint:wrapcheck // names the file
		}
		_ = os.Remove(file.Name()) // its space is free once it is closed, however this process ends; not so on Windows
		s.file, s.w = file, bufio.NewWriterSize(file, 64<<10)
		if _, err := s.w.Write(s.small); err != nil {
			return 0, err //nolint:wrapcheck // names the file
		}
		s.small = nil
	}
	return s.w.Write(p) //nolint:wrapcheck // names the file
}

func (s *spool) copyTo(w io.Writer) error {
	if s.file == nil {
		_, err := w.Write(s.small)
		return err //nolint:wrapcheck // names the file
	}
	err := s.w.Flush()
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(w, s.file)
	}
	return err //nolint:wrapcheck // names the file
}

func (s *spool) close() {
	if s.file != nil {
		_ = errors.Join(s.file.Close(), os.Remove(s.file.Name()))
	}
}
