package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/recordset"
)

// span is where the rows of a slice are: so many from off on of the page that begins at position page.
type span struct {
	no           int32
	page         int64
	off, records int32
}

// wholePage stands for the number of records of a slice that is its page, as all are but those of retries.
const wholePage = -1

// spans reads where the rows of slices of a retry are.
func (s *Service) spans(ctx context.Context, conn db.DBTX, batchID uuid.UUID, nos []int32) ([]span, error) {
	rows, err := s.q.SliceSpans(ctx, conn, db.SliceSpansParams{BatchID: batchID, Nos: nos})
	if err != nil {
		return nil, fmt.Errorf("read slices of batch %s: %w", batchID, err)
	}
	out := make([]span, len(rows))
	for i, r := range rows {
		out[i] = span{no: r.No, page: r.First - int64(r.PageOff), off: r.PageOff, records: r.Records}
	}
	return out, nil
}

// readSpans reads the pages of slices, by slice. Slices of a retry that lie in one page share it, so that it is unpacked once:
// release them when all are done.
func readSpans(ctx context.Context, conn db.DBTX, batchID, pageSet uuid.UUID, spans []span) (map[int32]*recordset.Page, error) {
	firsts := make([]int64, len(spans))
	for i, sp := range spans {
		firsts[i] = sp.page
	}
	slices.Sort(firsts)
	pages, err := recordset.ReadPages(ctx, conn, pageSet, slices.Compact(firsts))
	if err != nil {
		return nil, fmt.Errorf("read records of batch %s: %w", batchID, err)
	}
	byFirst := make(map[int64]*recordset.Page, len(pages))
	for i := range pages {
		byFirst[pages[i].First] = &pages[i]
	}
	out := make(map[int32]*recordset.Page, len(spans))
	for _, sp := range spans {
		out[sp.no] = byFirst[sp.page]
	}
	return out, nil
}
