package pg

import (
	"strings"
	"testing"
)

func TestRisks(t *testing.T) {
	t.Parallel()
	safe := durability{fsync: "on", fullPages: "on", commit: "on"}
	for name, tt := range map[string]struct {
		change func(*durability)
		want   []string
	}{
		"Safe":         {func(*durability) {}, nil},
		"NoFsync":      {func(d *durability) { d.fsync = "off" }, []string{"fsync is off"}},
		"TornPages":    {func(d *durability) { d.fullPages = "off" }, []string{"full_page_writes is off"}},
		"CommitsLater": {func(d *durability) { d.commit = "off" }, []string{"synchronous_commit is off"}},
		"Both": {func(d *durability) { d.fsync, d.commit = "off", "off" }, []string{"fsync is off",
			"synchronous_commit is off"}},
		"Standby": {func(d *durability) { d.standbys = 2 }, []string{"2 standbys follow"}},
		"Awaited": {func(d *durability) { d.standbys, d.synchronous = 2, "ANY 1 (a, b)" }, nil},
		"Applied": {func(d *durability) { d.standbys, d.synchronous, d.commit = 1, "*", "remote_apply" }, nil},
		"AwaitsNothing": {func(d *durability) { d.standbys, d.synchronous, d.commit = 1, "*", "local" },
			[]string{"synchronous_commit is local"}},
		"LocalAlone": {func(d *durability) { d.commit = "local" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := safe
			tt.change(&d)
			got := d.risks()
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i, risk := range got {
				if !strings.HasPrefix(risk, tt.want[i]) || !strings.Contains(risk, "Set ") && !strings.Contains(risk,
					"Name ") {
					t.Errorf("got %q, want what begins with %q and says what to do", risk, tt.want[i])
				}
			}
		})
	}
}
