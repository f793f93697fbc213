package pg

import (
	"context"
	"fmt"
)

// durability is what a server does with a commit before it answers, and how many standbys follow it.
type durability struct {
	fsync, fullPages, commit, synchronous string
	standbys                              int
}

// Risks says what may be lost of what this server has committed, and what to set: nothing for one that answers only
// once a commit is on its disk, and on that of a standby where one follows it. After a loss, calls that were sent are
// unknown, and are sent again.
func Risks(ctx context.Context, db DB) ([]string, error) {
	var d durability
	err := db.QueryRow(ctx, `
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'),
    (SELECT count(*) FROM pg_stat_get_wal_senders() WHERE state IS NULL OR state IN ('streaming', 'catchup'))`).
		Scan(&d.fsync, &d.fullPages, &d.commit, &d.synchronous, &d.standbys)
	if err != nil {
		return nil, fmt.Errorf("read how durable commits are: %w", err)
	}
	return d.risks(), nil
}

func (d durability) risks() (out []string) {
	if d.fsync == "off" {
		out = append(out, "fsync is off: when the machine of Postgres stops without warning, "+
			"the database may be spoiled, and what was sent lately is forgotten and sent again. Set fsync to on.")
	}
	if d.fullPages == "off" {
		out = append(out, "full_page_writes is off: when the machine of Postgres stops without warning, "+
			"pages may be torn. Set full_page_writes to on, unless the file system never tears pages.")
	}
	switch {
	case d.commit == "off":
		out = append(out, "synchronous_commit is off: when Postgres stops without warning, "+
			"it forgets the last moments: starts that were answered are lost, and calls that were sent are sent "+
			"again. Set synchronous_commit to on.")
	case d.synchronous != "" && d.commit == "local":
		out = append(out, "synchronous_commit is local: no commit waits for the standbys "+
			"of synchronous_standby_names, so that one which is promoted may have forgotten calls that were sent. "+
			"Set synchronous_commit to on.")
	case d.standbys > 0 && d.synchronous == "":
		out = append(out, fmt.Sprintf("%d standbys follow this server and no commit waits for them: "+
			"one that is promoted may have forgotten calls that were sent, which are sent again. "+
			"Name them in synchronous_standby_names.",
			d.standbys))
	}
	return out
}
