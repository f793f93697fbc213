package recordset

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
)

// ChunkResult is the answer to a chunk.
type ChunkResult struct {
	RecordSetID uuid.UUID
	ChunkIndex  int
	// RecordsReceived is how many records the chunk carried, Inserted how many of them are new: all or none.
	RecordsReceived, Inserted int
	// ReceivedCount is how many records the set holds now.
	ReceivedCount int64
	// Replay tells that the set had this chunk already, with the same records.
	Replay bool
}

// Append accepts one chunk: body is the request as it came, {"chunk_index": n, "records": [{...}, ...]}; it is read in
// place and not kept. The chunk is durable when Append returns. Faults: NotFound; Conflict when the set is not open, or
// has other records under this index; Unprocessable with every bad place of the body, and where the organization may
// not store so much.
func (s *Service) Append(ctx context.Context, orgID, id uuid.UUID, body []byte) (ChunkResult, error) {
	m, err := s.openSet(ctx, orgID, id)
	if err != nil {
		return ChunkResult{}, err
	}
	spans := spanLists.Get().(*[]span)
	defer spanLists.Put(spans)
	c, err := parse(body, int(m.ChunkSize), *spans)
	if err != nil {
		return ChunkResult{}, err
	}
	*spans = c.rows
	u := upload{Service: s, set: m, chunk: c, body: body}
	out, err := u.known(ctx)
	if err != nil || out.Replay {
		return out, err
	}
	out, err = u.insert(ctx)
	if pg.IsUnique(err, "page_pkey") {
		// Another upload of the same chunk committed first.
		if out, err = u.known(ctx); err == nil && !out.Replay {
			err = errors.New("a chunk has pages but no row of its own")
		}
	}
	return out, err
}

// TakesChunks says whether a set takes chunks now. Faults: NotFound; Conflict when it is not open.
func (s *Service) TakesChunks(ctx context.Context, orgID, id uuid.UUID) error {
	_, err := s.openSet(ctx, orgID, id)
	return err
}

var spanLists = sync.Pool{New: func() any { return new([]span) }}

func (s *Service) openSet(ctx context.Context, orgID, id uuid.UUID) (Manifest, error) {
	m, err := s.Get(ctx, orgID, id)
	if err == nil && m.Status != Open {
		err = errNotOpen
	}
	return m, err
}

// upload is one checked chunk on its way into a set.
type upload struct {
	*Service
	set   Manifest
	chunk chunk
	body  []byte
}

func (u *upload) row(i int) []byte {
	at := u.chunk.rows[i]
	return u.body[at.from:at.to]
}

// bytes is the size of the rows.
func (u *upload) bytes() (n int64) {
	for _, at := range u.chunk.rows {
		n += int64(at.to - at.from)
	}
	return n
}

func (u *upload) first() int64 { return int64(u.chunk.index) * int64(u.set.ChunkSize) }

func (u *upload) result() ChunkResult {
	return ChunkResult{RecordSetID: u.set.ID, ChunkIndex: int(u.chunk.index), RecordsReceived: len(u.chunk.rows)}
}

// insert stores the chunk in one transaction. The set's row is locked last: uploads of other chunks wait for the commit
// at most.
func (u *upload) insert(ctx context.Context) (ChunkResult, error) {
	out, bytes := u.result(), u.bytes()
	away, err := u.putAway(ctx, bytes)
	if err != nil {
		return out, err
	}
	whole := false
	err = pg.InTx(ctx, u.pool, func(ctx context.Context, tx pgx.Tx) error {
		room, err := u.stored.Take(ctx, tx, u.set.OrgID, bytes)
		if err != nil {
			return err
		}
		if room.Taken < bytes {
			return orgquota.Bytes(room, bytes)
		}
		digest, err := u.write(ctx, tx, away)
		if err != nil {
			return err
		}
		if err := u.q.ChunkInsert(ctx, tx, db.ChunkInsertParams{
			RecordSetID: u.set.ID, ChunkIndex: u.chunk.index, Digest: digest[:],
			Records: int32(len(u.chunk.rows)), //nolint:gosec // at most MaxChunkSize
		}); err != nil {
			return fmt.Errorf("insert chunk: %w", err)
		}
		if err := account.Audit(ctx, tx, auditType, u.set.ID.String()); err != nil {
			return err
		}
		out.ReceivedCount, err = u.q.RecordSetReceive(ctx, tx, db.RecordSetReceiveParams{
			OrgID: u.set.OrgID, ID: u.set.ID, Records: int64(len(u.chunk.rows)), RowBytes: bytes,
			StagingSeconds: Staging.Seconds(),
		})
		if pg.IsNoRows(err) {
			return errGone
		}
		if err != nil {
			return fmt.Errorf("count chunk: %w", err)
		}
		out.Inserted, whole = len(u.chunk.rows), true
		return nil
	})
	if away != nil && !whole { // no commit was tried, which could have named it
		away.drop(ctx)
	}
	if errors.Is(err, errGone) {
		// Sealed, deleted or expired since it was read.
		if _, err = u.openSet(ctx, u.set.OrgID, u.set.ID); err == nil {
			err = errNotOpen
		}
	}
	return out, err
}

var errGone = errors.New("the record set is not open any more")

// known answers a chunk whose index the set has already: Replay for the same records, a Conflict for others, and
// neither when the index is new.
func (u *upload) known(ctx context.Context) (ChunkResult, error) {
	out := u.result()
	stored, err := u.q.ChunkGet(ctx, u.pool, db.ChunkGetParams{RecordSetID: u.set.ID, ChunkIndex: u.chunk.index})
	if pg.IsNoRows(err) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("read chunk: %w", err)
	}
	h := rowHash{Hash: sha256.New()}
	for i := range u.chunk.rows {
		h.row(u.row(i))
	}
	same := int(stored.Records) == len(u.chunk.rows)
	if same && h.digest() != Digest(stored.Digest) {
		if same, err = u.sameRows(ctx); err != nil {
			return out, err
		}
	}
	if !same {
		return out, fault.New(fault.Conflict, "Chunk %d was already received with other records", u.chunk.index)
	}
	m, err := u.openSet(ctx, u.set.OrgID, u.set.ID)
	if err != nil {
		return out, err
	}
	out.ReceivedCount, out.Replay = m.ReceivedCount, true
	return out, account.Audit(ctx, u.pool, auditType, u.set.ID.String())
}

// sameRows compares the chunk with what is stored under its index, row by row and by value.
func (u *upload) sameRows(ctx context.Context) (bool, error) {
	first, count := u.first(), int64(len(u.chunk.rows))
	for at := first; at < first+count; {
		page, err := u.pages().at(ctx, u.pool, u.set.ID, at)
		if err != nil {
			return false, err
		}
		same, err := u.samePage(page, int(at-first))
		page.Release()
		if err != nil || !same {
			return false, err
		}
		at += int64(page.Count)
	}
	return true, nil
}

func (u *upload) samePage(page *Page, offset int) (bool, error) {
	rows, err := page.Rows()
	if err != nil {
		return false, err
	}
	for i, row := range rows {
		if !sameValue(row, u.row(offset+i)) {
			return false, nil
		}
	}
	return true, nil
}

// rowHash adds rows to a digest.
type rowHash struct {
	hash.Hash
	line []byte
}

func (h *rowHash) row(row []byte) {
	h.line = append(append(h.line[:0], row...), '\n')
	h.Write(h.line)
}

func (h *rowHash) digest() Digest { return Digest(h.Sum(nil)) }
