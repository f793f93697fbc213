package due

import (
	"testing"
	"time"
)

// began is when the process of these tests begins, by the database's clock.
var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// watched is the track of a process that compares every five seconds, each time in 2 ms. steps says by how much the
// clock steps just before the comparison at a second.
func watched(seconds int, steps map[int]time.Duration) (*track, map[int]time.Duration) {
	t, seen, off := &track{}, map[int]time.Duration{}, time.Duration(0)
	for s := 0; s <= seconds; s += 5 {
		off += steps[s]
		mono := time.Duration(s) * time.Second
		if step, steady := t.add(mono-time.Millisecond, mono+time.Millisecond, began.Add(mono+off)); !steady {
			seen[s] = step.Round(time.Second)
		}
	}
	return t, seen
}

func TestTrack_Age(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	tests := map[string]struct {
		seconds int
		steps   map[int]time.Duration
		vouched span
		// at is a time by the database's clock, in seconds from the beginning; least and most bound its age in seconds.
		at, least, most float64
	}{
		"Steady":           {seconds: 100, at: 40, least: 59.8, most: 60},
		"Now":              {seconds: 100, at: 100, least: 0, most: 0.2},
		"BeforeTheProcess": {seconds: 100, at: -500, least: 99.9, most: 100},
		"BeforeTheProcessVouched": {seconds: 100, at: -500, vouched: span{began.Add(-hour),
			began.Add(-4 * time.Second)}, least: 595, most: 600},
		"BeforeItWasWatched": {seconds: 100, at: -5000, vouched: span{began.Add(-hour), began}, least: 99.9,
			most: 100},
		"WhileNobodyWatched": {seconds: 100, at: -2, vouched: span{began.Add(-hour),
			began.Add(-4 * time.Second)}, least: 99.9, most: 102},
		"ForwardAfterIt": {seconds: 100, steps: map[int]time.Duration{60: 90 * time.Second}, at: 40,
			least: 59.8, most: 60},
		"ForwardJustAfterIt": {seconds: 60, steps: map[int]time.Duration{60: 90 * time.Second}, at: 58,
			least: 0, most: 2},
		"ForwardBeforeIt": {seconds: 100, steps: map[int]time.Duration{60: 90 * time.Second}, at: 160,
			least: 29.8, most: 30},
		"BackAfterIt": {seconds: 100, steps: map[int]time.Duration{60: -90 * time.Second}, at: 40,
			least: 59.8, most: 60},
		"BackJustAfterIt": {seconds: 60, steps: map[int]time.Duration{60: -90 * time.Second}, at: 58,
			least: 0, most: 2},
		"BackBeforeIt": {seconds: 100, steps: map[int]time.Duration{60: -90 * time.Second}, at: -20,
			least: 29.8, most: 30},
		"BackByADay": {seconds: 200, steps: map[int]time.Duration{60: -24 * hour}, at: 40,
			least: 159.8, most: 160},
		"BackBeforeTheProcess": {seconds: 100, at: 86000, least: 0, most: 0},
		"SaidTwice": {seconds: 200, steps: map[int]time.Duration{100: -50 * time.Second}, at: 80,
			least: 69.8, most: 70},
		"ForwardAndBackAgain": {seconds: 100, steps: map[int]time.Duration{40: 90 * time.Second,
			60: -90 * time.Second}, at: 20, least: 79.8, most: 80},
		"ForwardAndBackAgain/Between": {seconds: 100, steps: map[int]time.Duration{40: 90 * time.Second,
			60: -90 * time.Second}, at: 140, least: 49.8, most: 50},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, seen := watched(tt.seconds, tt.steps)
			tr.vouched = tt.vouched
			age := tr.age(began.Add(time.Duration(tt.at * float64(time.Second)))).Seconds()
			if age < tt.least || age > tt.most {
				t.Errorf("the age is %.3f s, want %.1f to %.1f", age, tt.least, tt.most)
			}
			for s, step := range tt.steps {
				if seen[s] != step {
					t.Errorf("a step of %s was taken for one of %s", step, seen[s])
				}
			}
			if len(seen) != len(tt.steps) {
				t.Errorf("steps are %v, want %v", seen, tt.steps)
			}
		})
	}
}

// A clock that is brought nearer to the time, by up to 8 % of it, makes nothing look older than it is by more than
// twice the slack.
func TestTrack_Slew(t *testing.T) {
	t.Parallel()
	tr := &track{}
	for s := range 7200 {
		mono := time.Duration(s) * time.Second
		tr.add(mono, mono+time.Millisecond, began.Add(mono+mono*8/100))
		if s < 60 {
			continue
		}
		then := mono - time.Minute
		if age := tr.age(began.Add(then + then*8/100)); age > time.Minute+2*trackSlack ||
			age < time.Minute-2*time.Second {
			t.Fatalf("after %d s a minute looks like %s", s, age)
		}
	}
	if len(tr.stretches) != trackMost {
		t.Errorf("%d stretches are kept", len(tr.stretches))
	}
}

// A time that the clock is yet to say, because it was set back before anybody watched, grows old from the first
// question about it on.
func TestTrack_Unseen(t *testing.T) {
	t.Parallel()
	tr, _ := watched(100, nil)
	at := began.Add(24 * time.Hour)
	if age := tr.age(at); age != 0 {
		t.Fatalf("its age is %s at first", age)
	}
	tr.add(160*time.Second, 160*time.Second+time.Millisecond, began.Add(160*time.Second))
	if age := tr.age(at); age != time.Minute {
		t.Errorf("its age is %s a minute later", age)
	}
}
