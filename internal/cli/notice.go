package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// notices prints log records of level info and above as plain sentences, for a person who waits.
type notices struct{ w io.Writer }

// Enabled implements slog.Handler.
func (notices) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (n notices) Handle(_ context.Context, r slog.Record) error {
	var notes []string
	r.Attrs(func(a slog.Attr) bool {
		notes = append(notes, fmt.Sprintf("%s %v", strings.ReplaceAll(a.Key, "_", " "), a.Value))
		return true
	})
	text := r.Message
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	_, err := fmt.Fprintln(n.w, text)
	return err //nolint:wrapcheck // nobody reads it
}

// WithAttrs implements slog.Handler; what is printed does not need them.
func (n notices) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements slog.Handler.
func (n notices) WithGroup(string) slog.Handler { return n }
