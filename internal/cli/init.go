package cli

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// starter is what a folder begins with.
//
//go:embed starter
var starter embed.FS

type initCommand struct {
	output

	Dir string `arg:"" optional:"" default:"." type:"path" help:"The folder; it is made where it is missing."`
}

// Run writes the files, none of them where one is there.
func (c *initCommand) Run(p *process) error {
	files, err := fs.Sub(starter, "starter")
	if err != nil {
		return err //nolint:wrapcheck // cannot be
	}
	var names []string
	var there error
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		names = append(names, name)
		path := filepath.Join(c.Dir, name)
		if _, err := os.Lstat(path); err == nil {
			there = errors.Join(there, fmt.Errorf("%s is there already", path))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err //nolint:wrapcheck // names the file
		}
		return nil
	})
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	if there != nil {
		return fmt.Errorf("%w; nothing was written: choose another folder, as `flowlane init my-flow`", there)
	}
	for _, name := range names {
		if err := place(files, name, filepath.Join(c.Dir, name)); err != nil {
			return err
		}
	}
	facts := struct {
		Dir   string   `json:"dir"`
		Files []string `json:"files"`
	}{c.Dir, names}
	return c.print(p, facts, func(w io.Writer) {
		for _, name := range names {
			fmt.Fprintln(w, filepath.Join(c.Dir, name))
		}
		fmt.Fprintf(w, "\n`flowlane test %s` runs the flow; README.md there says how to go on.\n", c.Dir)
	})
}

// place writes a file that is not there.
func place(files fs.FS, name, path string) error {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // nothing there is secret
		return err //nolint:wrapcheck // names the folder
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // nothing in it is secret
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
