package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"flowlane/internal/cli/upload"
)

const (
	barWidth = 30
	// redrawEvery and lineEvery are how often a bar moves, and how often a line is written where nobody looks.
	redrawEvery = 100 * time.Millisecond
	lineEvery   = 2 * time.Second
)

// bar shows how far something is: a bar that moves on a terminal, now and then a line elsewhere.
type bar struct {
	w        io.Writer
	name     string
	terminal bool
	drawn    time.Time
	last     string
}

func newBar(w io.Writer, name string) *bar {
	return &bar{w: w, name: name, terminal: terminal(w)}
}

func (b *bar) upload(p upload.Progress) {
	note := fmt.Sprintf("%s of %s records, chunk %d of %d", thousands(p.SentRecords), thousands(p.Records),
		p.SentChunks, p.Chunks)
	if p.Resumed {
		note += ", resumed"
	}
	b.show(p.SentRecords, p.Records, note)
}

// show draws if it is time to, and always at the end.
func (b *bar) show(done, all int64, note string) {
	now := time.Now()
	every := lineEvery
	if b.terminal {
		every = redrawEvery
	}
	if done < all && !b.drawn.IsZero() && now.Sub(b.drawn) < every {
		return
	}
	b.drawn = now
	text := fmt.Sprintf("%s %3d%% %s", b.name, share(done, all), note)
	if b.terminal {
		filled := int(share(done, all)) * barWidth / 100
		text = fmt.Sprintf("%s [%s%s] %3d%% %s", b.name, strings.Repeat("#", filled),
			strings.Repeat(".", barWidth-filled), share(done, all), note)
	}
	if text == b.last {
		return
	}
	if b.terminal {
		text = oneLine(text, width(b.w))
		fmt.Fprintf(b.w, "\r%s\x1b[K", text)
	} else {
		fmt.Fprintln(b.w, text)
	}
	b.last = text
}

// end leaves the bar where it is.
func (b *bar) end() {
	if b.terminal && b.last != "" {
		fmt.Fprintln(b.w)
	}
	b.last = ""
}

// oneLine cuts a text so that a terminal does not break it: what is drawn over must be one line.
func oneLine(text string, columns int) string {
	if runes := []rune(text); columns > 1 && len(runes) >= columns {
		return string(runes[:columns-2]) + "…"
	}
	return text
}

func share(done, all int64) int64 {
	if all == 0 {
		return 100
	}
	return done * 100 / all
}

// thousands writes 30340 as 30,340.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// terminal tells whether a person looks at w.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
