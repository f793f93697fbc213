package cli

import (
	"fmt"
	"maps"
	"os"
	"time"
)

const (
	// lookEvery is how often a development server looks whether files were saved.
	lookEvery = 250 * time.Millisecond
	// maxWatched bounds the files that it looks at.
	maxWatched = 2000
)

// folderWatch tells when files were saved. It asks for their times, since what file systems tell by themselves differs
// between systems, containers and network folders.
type folderWatch struct {
	// list names the files.
	list func() ([]string, error)
	// seen is what was there at the last look, taken what was when changed last said so.
	seen, taken map[string]stamp
	// said is the last mistake that was told, so that it is told once.
	said string
}

type stamp struct {
	modified time.Time
	size     int64
}

func newFolderWatch(list func() ([]string, error)) *folderWatch {
	return &folderWatch{list: list, taken: map[string]stamp{}}
}

// take counts what is there now as known.
func (w *folderWatch) take() (err error) {
	w.taken, err = w.scan()
	return err
}

// forget has changed say once more that there is something new.
func (w *folderWatch) forget() { w.taken = map[string]stamp{} }

// changed reports whether there is something new, once two looks see the same: an editor may still be writing.
func (w *folderWatch) changed() (bool, error) {
	now, err := w.scan()
	if err != nil {
		return false, err
	}
	settled := equalStamps(now, w.seen)
	w.seen = now
	if !settled || equalStamps(now, w.taken) {
		return false, nil
	}
	w.taken = now
	return true, nil
}

func (w *folderWatch) scan() (map[string]stamp, error) {
	files, err := w.list()
	if err != nil {
		return nil, err
	}
	if len(files) > maxWatched {
		return nil, fmt.Errorf("there are %d files, more than the %d that are watched: choose a folder with less in it",
			len(files), maxWatched)
	}
	now := make(map[string]stamp, len(files))
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			continue // it has just gone
		}
		now[file] = stamp{info.ModTime(), info.Size()}
	}
	return now, nil
}

func equalStamps(a, b map[string]stamp) bool {
	return maps.EqualFunc(a, b, func(x, y stamp) bool { return x.size == y.size && x.modified.Equal(y.modified) })
}
