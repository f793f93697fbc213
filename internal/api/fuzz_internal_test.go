package api

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
)

var fuzzOrg = uuid.MustParse("0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11")

// FuzzCursor: a text is the cursor that this list gave, or is refused; and whatever key it carries, every list reads
// the key or refuses it.
func FuzzCursor(f *testing.F) {
	empty := page{scope: ""}
	f.Add("", "")
	f.Add("AAAAAAAAAAAAAAAA", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11")
	f.Add(empty.cursor("7"), "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.7")
	f.Add("~", "1764000000000000 0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11")
	f.Add("=", "a\x00b")
	f.Fuzz(func(t *testing.T, text, key string) {
		open := func(org uuid.UUID, cursor string) (page, error) {
			return pageOf("things", org, oas.OptInt{}, oas.OptInt{}, oas.NewOptString(cursor), "a filter")
		}
		p, err := open(fuzzOrg, text)
		switch {
		case err == nil && p.cursor(p.Key) != text:
			t.Fatalf("%q is taken for the cursor %q", text, p.cursor(p.Key))
		case err != nil && !errors.Is(err, errCursor):
			t.Fatalf("%q: %v", text, err)
		}
		made := page{scope: p.scope}.cursor(key)
		p, err = open(fuzzOrg, made)
		if storable := key != "" && utf8.ValidString(key) && !strings.Contains(key, "\x00"); storable != (err == nil) {
			t.Fatalf("the cursor of the key %q: %v", key, err)
		}
		if err != nil {
			return
		}
		if p.Key != key {
			t.Fatalf("the cursor of %q gives %q", key, p.Key)
		}
		if _, err := open(uuid.Nil, made); !errors.Is(err, errCursor) {
			t.Fatalf("%q is taken for another organization's list: %v", made, err)
		}
		readKey(t, p)
	})
}

// readKey reads the key of a page as each kind of list does.
func readKey(t *testing.T, p page) {
	t.Helper()
	if id, err := p.afterID(); err == nil && id.String() != p.Key || err != nil && !errors.Is(err, errCursor) {
		t.Fatalf("%q is the id %s, %v", p.Key, id, err)
	}
	var filter query.RecordFilter
	if err := p.beginAt(&filter); err == nil && batch.JobID(filter.FromBatch, filter.FromPosition-1) != p.Key ||
		err != nil && !errors.Is(err, errCursor) {
		t.Fatalf("%q is the job %s, %v", p.Key, batch.JobID(filter.FromBatch, filter.FromPosition-1), err)
	}
	if at, _, err := auditPlace(p.Key); err == nil && (at.Year() < 1 || at.Year() > 9999) || err != nil &&
		!errors.Is(err, errCursor) {
		t.Fatalf("%q is the time %s, %v", p.Key, at, err)
	}
	if at, _, err := updatePlace(p.Key); err == nil && (at.Year() < 0 || at.Year() > 9999) || err != nil &&
		!errors.Is(err, errCursor) {
		t.Fatalf("%q is the time %s, %v", p.Key, at, err)
	}
}

// FuzzJobID: what is read as the id of a job or an execution is written the same.
func FuzzJobID(f *testing.F) {
	for _, id := range []string{
		"0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.0", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.17.1",
		"0192F0C1-7C3E-7A52-9D3B-5D5B0C6F1A11.1",
		"0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.01", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.9223372036854775807",
		"0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.-0.1",
		"{0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11}.1", "0192f0c17c3e7a529d3b5d5b0c6f1a11.1", "..1", "",
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, position, ok := parseJobID(text); ok && (position < 0 || batch.JobID(id, position) != text) {
			t.Fatalf("%q is read as the job %s", text, batch.JobID(id, position))
		}
		if id, position, no, ok := parseExecutionID(text); ok &&
			(position < 0 || executionID(batch.JobID(id, position), no) != text) {
			t.Fatalf("%q is read as the execution %s", text, executionID(batch.JobID(id, position), no))
		}
	})
}
