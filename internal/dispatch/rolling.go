package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// rolling are the rolling windows of a budget at now, for calls that cannot arrive after until.
func (m *meter) rolling(ctx context.Context, conn db.DBTX, now, until time.Time) (out []quota.Window, err error) {
	if len(m.caps.Rolling) == 0 {
		return nil, nil
	}
	rows, err := db.New().RollingRead(ctx, conn, db.RollingReadParams{Domain: m.key.domain, Bucket: m.key.bucket,
		Now: now})
	if err != nil {
		return nil, fmt.Errorf("read the rolling windows of %s: %w", m.key, err)
	}
	cells := map[int][]quota.Cell{}
	for _, r := range rows {
		cells[int(r.WindowSeconds)] = append(cells[int(r.WindowSeconds)], quota.Cell{No: r.Cell, Own: int(r.Own),
			Foreign: int(r.ForeignSpend)})
	}
	for _, seconds := range quota.Lengths(m.caps.Rolling) {
		w := quota.Roll(seconds, m.caps.Rolling[seconds], cells[seconds], now, until)
		w.Bucket = m.as
		out = append(out, w)
	}
	return out, nil
}

// debitRolling spends calls in the rolling ones of spans, or fails with errBudgetMoved.
func (m *meter) debitRolling(ctx context.Context, tx pgx.Tx, spans []quota.Window, calls int) error {
	for i := range spans {
		s := &spans[i]
		if !s.Rolls || s.Bucket != m.as {
			continue
		}
		length := time.Duration(s.Seconds) * time.Second
		now := s.Start.Add(length)
		rows, err := db.New().RollingDebit(ctx, tx, db.RollingDebitParams{Domain: m.key.domain, Bucket: m.key.bucket,
			WindowSeconds: int32(s.Seconds),
			Cell:          s.Cell, EndsAt: quota.CellOver(s.Cell, s.Seconds), Calls: int32(calls), Cap: int32(s.Cap),
			Now: now})
		if err != nil {
			return fmt.Errorf("debit the rolling windows of %s: %w", m.key, err)
		}
		if rows != 1 {
			return fmt.Errorf("%w: %s", errBudgetMoved, m.key)
		}
		err = db.New().RollingPrune(ctx, tx, db.RollingPruneParams{Domain: m.key.domain, Bucket: m.key.bucket,
			WindowSeconds: int32(s.Seconds),
			Cell:          quota.CellAt(now.Add(-length-pruneAfter), s.Seconds)})
		if err != nil {
			return fmt.Errorf("prune the rolling windows of %s: %w", m.key, err)
		}
	}
	return nil
}

// pruneAfter is how long cells are kept that count no more.
const pruneAfter = 10 * time.Second

// addRolling counts calls in the rolling ones of spans, whatever these leave.
func (m *meter) addRolling(ctx context.Context, conn db.DBTX, spans []quota.Window, own, foreign int) error {
	p := db.RollingAddParams{Domain: m.key.domain, Bucket: m.key.bucket}
	for i := range spans {
		if s := &spans[i]; s.Rolls {
			p.Seconds, p.Cells, p.Ends = append(p.Seconds, int32(s.Seconds)), append(p.Cells, s.Cell),
				append(p.Ends, quota.CellOver(s.Cell, s.Seconds))
			p.Own, p.ForeignSpend = append(p.Own, int32(own)), append(p.ForeignSpend, int32(foreign))
		}
	}
	if len(p.Seconds) == 0 {
		return nil
	}
	if err := db.New().RollingAdd(ctx, conn, p); err != nil {
		return fmt.Errorf("count in the rolling windows of %s: %w", m.key, err)
	}
	return nil
}

// clampRolling raises what counts in a rolling window to what the provider counted, by calls of others that count from
// now on. Two who do so at once may raise it twice, which is over with the length of the window.
func (m *meter) clampRolling(ctx context.Context, conn db.DBTX, c provider.Counter, now time.Time) error {
	rolling, err := m.rolling(ctx, conn, now, now)
	if err != nil {
		return err
	}
	for i := range rolling {
		if w := &rolling[i]; w.Seconds == c.WindowSeconds && c.Value > w.Used() {
			return m.addRolling(ctx, conn, rolling[i:i+1], 0, c.Value-w.Used())
		}
	}
	return nil
}

// rolledCell is a cell of a rolling window.
type rolledCell struct {
	seconds int
	cell    int64
}

// move puts what a call cost into the cells that it was moved to.
func (r *releases) move(moved quota.CountsIn, cost func(bucket string) int) {
	for w, cells := range moved {
		bucket := cmp.Or(w.Bucket, r.key.bucket)
		r.roll(bucket, w.Seconds, cells, cost(bucket))
	}
}

func (r *releases) roll(bucket string, seconds int, cells []int64, calls int) {
	if r.rolled[bucket] == nil {
		r.rolled[bucket] = map[rolledCell]int{}
	}
	for _, cell := range cells {
		r.rolled[bucket][rolledCell{seconds, cell}] += calls
	}
}

// writeRolled takes calls out of the cells that they were debited in before it puts them into others, so that
// settlements which do both at once wait for each other in one order.
func (r *releases) writeRolled(ctx context.Context, tx pgx.Tx) error {
	for _, bucket := range slices.Sorted(maps.Keys(r.rolled)) {
		less := db.RollingReleaseParams{Domain: r.key.domain, Bucket: bucket}
		more := db.RollingAddParams{Domain: r.key.domain, Bucket: bucket}
		cells := slices.SortedFunc(maps.Keys(r.rolled[bucket]), func(a, b rolledCell) int {
			return cmp.Or(cmp.Compare(a.seconds, b.seconds), cmp.Compare(a.cell, b.cell))
		})
		for _, c := range cells {
			switch n := r.rolled[bucket][c]; {
			case n < 0:
				less.Seconds, less.Cells, less.Calls = append(less.Seconds, int32(c.seconds)),
					append(less.Cells, c.cell), append(less.Calls, int32(-n))
			case n > 0:
				more.Seconds, more.Cells, more.Own = append(more.Seconds, int32(c.seconds)), append(more.Cells, c.cell),
					append(more.Own, int32(n))
				more.Ends, more.ForeignSpend = append(more.Ends, quota.CellOver(c.cell, c.seconds)),
					append(more.ForeignSpend, 0)
			}
		}
		if err := db.New().RollingRelease(ctx, tx, less); err != nil {
			return fmt.Errorf("release rolling windows of %s of %s: %w", bucket, r.key.domain, err)
		}
		if len(more.Seconds) == 0 {
			continue
		}
		if err := db.New().RollingAdd(ctx, tx, more); err != nil {
			return fmt.Errorf("move calls in rolling windows of %s of %s: %w", bucket, r.key.domain, err)
		}
	}
	return nil
}
