package account

import (
	"bytes"
	"crypto/rand"
	"regexp"
	"strings"
	"testing"
)

func TestNewKey(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^flow_[0-9A-Za-z]{49}$`)
	for _, secret := range [][]byte{make([]byte, secretBytes), bytes.Repeat([]byte{0xff}, secretBytes)} {
		key, err := newKey(bytes.NewReader(secret))
		if err != nil || !form.MatchString(key) || !wellFormed(key) {
			t.Errorf("key of %x: %q, %v", secret[:2], key, err)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		key, err := newKey(rand.Reader)
		if err != nil || seen[key] {
			t.Fatalf("key %q: %v, seen before %t", key, err, seen[key])
		}
		seen[key] = true
	}
	if _, err := newKey(strings.NewReader("short")); err == nil {
		t.Error("a source that ran dry made a key")
	}
}

func TestWellFormed_RefusesAnyChange(t *testing.T) {
	t.Parallel()
	key, err := newKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := range key {
		changed := []byte(key)
		changed[i] ^= 1
		if wellFormed(string(changed)) {
			t.Errorf("a change at %d goes unnoticed", i)
		}
	}
	for _, bad := range []string{"", "flow_", key[:len(key)-1], key + "0", strings.ToUpper(key)} {
		if wellFormed(bad) {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestKeyHash_DependsOnTheHashKey(t *testing.T) {
	t.Parallel()
	a, b := keyHash([]byte("one"), "flow_x"), keyHash([]byte("two"), "flow_x")
	if bytes.Equal(a, b) || len(a) != 32 {
		t.Errorf("hashes %x and %x", a, b)
	}
}
