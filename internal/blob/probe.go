package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
)

// probePrefix begins the keys of probes, of which there are none but while there is a Probe.
const probePrefix = "probe-"

// Probe finds out whether a store does all that is asked of it, with a body of its own. The error says what it does
// not.
func Probe(ctx context.Context, s Store) error {
	key, body := probePrefix+rand.Text(), []byte("a body to write, read and delete")
	if err := s.Put(ctx, key, body); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	err := probe(ctx, s, key, body)
	if gone := s.Delete(ctx, key); gone != nil {
		return errors.Join(err, gone)
	}
	if err != nil {
		return err
	}
	if _, err := s.Get(ctx, key, 0, 1); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("the store still has a body that was deleted: %w", err)
	}
	return nil
}

func probe(ctx context.Context, s Store, key string, body []byte) error {
	const off, n = 2, 4
	part, err := s.Get(ctx, key, off, n)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if !bytes.Equal(part, body[off:off+n]) {
		return fmt.Errorf("the store gives %q where %q was written", part, body[off:off+n])
	}
	keys, err := s.List(ctx, key, "", 1)
	if err == nil && !slices.Equal(keys, []string{key}) {
		err = fmt.Errorf("the store does not list %s", key)
	}
	return err //nolint:wrapcheck // says everything
}
