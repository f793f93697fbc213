package cli

import "testing"

func TestProgress_WaitsForPerson(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		progress progress
		want     bool
	}{
		"Unresolved": {progress{Status: "running", Counts: map[string]int{"unresolved": 2, "accepted": 1,
			"pending": 0}}, true},
		"GoesOn": {progress{Status: "running", Counts: map[string]int{"unresolved": 2, "pending": 1}}, false},
		"IsAsked": {progress{Status: "running", Counts: map[string]int{"unresolved": 2, "needs_reconcile": 1}},
			false},
		"Nothing": {progress{Status: "running", Counts: map[string]int{"accepted": 1}}, false},
		"Over":    {progress{Status: "cancelled", Counts: map[string]int{"unresolved": 2}}, false},
	} {
		if got := tt.progress.waitsForPerson(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
