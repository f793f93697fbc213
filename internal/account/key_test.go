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
		if err != nil || !form.MatchString(key) || prefixOf(key) != "flow_" {
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
		if prefixOf(string(changed)) != "" {
			t.Errorf("a change at %d goes unnoticed", i)
		}
	}
	for _, bad := range []string{"", "flow_", key[:len(key)-1], key + "0", strings.ToUpper(key)} {
		if prefixOf(bad) != "" {
			t.Errorf("%q passes", bad)
		}
	}
}

// withSum is a key that begins so, with the sum that it needs.
func withSum(prefix string) string {
	text := prefix + strings.Repeat("A", secretChars)
	return text + checksum(text)
}

func TestPrefixOf_Cells(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"flow_", "flow_c1_", "flow_c4095_"} {
		if got := prefixOf(withSum(want)); got != want {
			t.Errorf("a key that starts with %s has the prefix %q", want, got)
		}
	}
	for _, bad := range []string{"flow_c0_", "flow_c01_", "flow_c_", "flow_c12345_", "flow_C1_", "flow_c1", "flow_c-1_", "flow_c1_c2_"} {
		if got := prefixOf(withSum(bad)); got != "" {
			t.Errorf("%s passes as %q", bad, got)
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
