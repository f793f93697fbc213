package dispatch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An answer is kept while the database is away, however long that is, and only the beginning and the end of it are
// logged.
func TestKeepTrying_LongOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := New(Deps{}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		back := time.Now().Add(3 * time.Hour)
		var answers sync.WaitGroup
		for range 10 {
			answers.Go(func() {
				err := d.keepTrying(t.Context(), func() error {
					if time.Now().Before(back) {
						return io.ErrUnexpectedEOF
					}
					return nil
				})
				if err != nil {
					t.Errorf("an answer was given up: %v", err)
				}
			})
		}
		answers.Wait()
		if late := time.Since(back); late > lastPause {
			t.Errorf("the answers were written %s after the database was back", late)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines were logged of one outage:\n%s", n, log.String())
		}
	})
}

// What fails for another reason is not tried again, nor is anything once there is no time any more.
func TestKeepTrying_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Deps{}, Options{Log: slog.New(slog.DiscardHandler)})
		refused := errors.New("refused")
		if err := d.keepTrying(t.Context(), func() error { return refused }); !errors.Is(err, refused) {
			t.Errorf("the error is %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := d.keepTrying(ctx, func() error { return io.EOF }); !errors.Is(err, io.EOF) ||
			time.Since(began) != time.Minute {
			t.Errorf("it ended after %s with %v", time.Since(began), err)
		}
	})
}
