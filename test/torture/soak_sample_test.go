package torture_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// samplesVariable names the file to which figures go, line by line, from which `make soak-picture` draws.
const samplesVariable = "FLOWLANE_SOAK_CSV"

// sample is how it goes at a time.
type sample struct {
	// since is how long after the first message.
	since time.Duration
	// sent and acked count messages from the first one on.
	sent  int
	acked int64
	// acknowledged, calls and records are how many came a second since the sample before: messages to their
	// acknowledgement, calls to receivers that answer, records of large batches to the platform.
	acknowledged, calls, records float64
	// p50, p99 and most are how long messages to receivers that answer took.
	p50, p99, most time.Duration
	// waiting deliveries, open batches, unresolved calls and due rows there are.
	waiting, open, unresolved, due int
	// resident is the size of the process, database that of the database, in bytes.
	resident, database int
}

// samples is a file of samples.
type samples struct{ file *os.File }

// newSamples begins the file that was asked for; nil where none was.
func newSamples(t *testing.T) *samples {
	t.Helper()
	name := os.Getenv(samplesVariable)
	if name == "" {
		return nil
	}
	s := &samples{file: must(os.Create(name))}
	t.Cleanup(func() { _ = s.file.Close() })
	s.row("seconds", "acknowledged_per_second", "calls_per_second", "records_per_second", "p50_ms", "p99_ms",
		"deliveries_waiting", "batches_open", "resident_mib", "database_mib")
	return s
}

func (s *samples) row(fields ...any) {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = fmt.Sprint(f)
	}
	w := csv.NewWriter(s.file)
	_ = w.Write(texts) // Flush keeps the error
	w.Flush()
	if err := w.Error(); err != nil {
		panic(err)
	}
}

func (s *samples) add(n *sample) {
	s.row(int(n.since.Seconds()), int(n.acknowledged), int(n.calls), int(n.records), n.p50.Milliseconds(),
		n.p99.Milliseconds(), n.waiting, n.open, n.resident>>20, n.database>>20)
}

// sample looks how it goes.
func (s *soak) sample(since time.Duration) *sample {
	s.Helper()
	s.mu.Lock()
	took, sent := s.took, len(s.sent)
	s.took = nil
	s.mu.Unlock()
	lately := (since - s.last.since).Seconds()
	slices.Sort(took)
	at := func(q float64) time.Duration {
		if len(took) == 0 {
			return 0
		}
		return took[min(len(took)-1, int(q*float64(len(took))))].Round(time.Millisecond)
	}
	acked := s.acked.Load()
	return &sample{since: since, sent: sent, acked: acked, acknowledged: float64(acked-s.last.acked) / lately,
		calls: float64(len(took)) / lately, p50: at(0.5), p99: at(0.99), most: at(1),
		waiting: s.count(waiting), open: s.open(), unresolved: s.count(unresolved),
		due:      s.count("SELECT count(*) FROM flow.due"),
		resident: residentSize(s.T, s.process.Process.Pid),
		database: s.count("SELECT pg_database_size(current_database())")}
}

// tell prints how it goes, and keeps it where that is asked for.
func (s *soak) tell(since time.Duration) {
	s.Helper()
	n := s.sample(since)
	if s.mix != nil {
		n.records = s.mix.arrived(since - s.last.since)
	}
	s.last = *n
	s.Logf("%4.0f s: %d messages, %d acknowledged; to receivers that answer %.0f/s, p50 %s, p99 %s, last %s; "+
		"%d deliveries wait, %d batches are open, %d calls unresolved, %d due rows; %.0f records/s of large batches; "+
		"%d MiB, database %d MiB", since.Seconds(), n.sent, n.acked, n.calls, n.p50, n.p99, n.most, n.waiting, n.open,
		n.unresolved, n.due, n.records, n.resident>>20, n.database>>20)
	if s.samples != nil {
		s.samples.add(n)
	}
}
