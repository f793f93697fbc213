package account

import (
	"strconv"
	"testing"
	"time"
)

// TestSeldom: equal things are told once a minute, others beside them, and neither without end.
func TestSeldom(t *testing.T) {
	t.Parallel()
	var s seldom
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	told := func(want bool, what ...string) {
		t.Helper()
		if got := s.first(now, what...); got != want {
			t.Errorf("%v at %s: told %t", what, now.Format(time.TimeOnly), got)
		}
	}
	told(true, "a", "b")
	told(false, "a", "b")
	told(true, "ab", "")
	told(true, "", "ab")
	now = now.Add(seldomEvery - 1)
	told(false, "a", "b")
	now = now.Add(1)
	told(true, "a", "b")
	told(false, "a", "b")

	n := 0
	for i := range 3 * seldomMost {
		if s.first(now, "address", strconv.Itoa(i)) {
			n++
		}
	}
	if n >= seldomMost || len(s.logged) > seldomMost {
		t.Errorf("%d are told in one minute, %d remembered", n, len(s.logged))
	}
	told(false, "somebody else")
	now = now.Add(seldomEvery)
	told(true, "somebody else")
	if len(s.logged) != 1 {
		t.Errorf("%d are remembered a minute later", len(s.logged))
	}
}
