package recordset

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/blob"
	"flowlane/internal/cell"
)

const (
	// leastAway is how large the pages of a chunk are that go to a blob: smaller ones cost a request more than they
	// save.
	leastAway = 16 << 10
	// nameWithin is how long after a blob was begun a row may still name it. The sweep takes those that are older by
	// half an hour or more, and nobody can name one then.
	nameWithin = 30 * time.Minute
)

// place is where a page is, as the body of its row says behind the format: the key of the blob, which part of it, and
// a sum over that, since the store is another one's.
type place struct {
	orgID, blobID uuid.UUID
	off, size     int64
	sum           uint32
}

const placeBytes = 1 + 16 + 16 + 8 + 8 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BlobKey is the key of a blob.
func BlobKey(orgID, blobID uuid.UUID) string { return orgID.String() + "/" + blobID.String() }

func (p *place) encode() []byte {
	b := append(make([]byte, 0, placeBytes), formatBlob)
	b = append(append(b, p.orgID[:]...), p.blobID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(p.off))  //nolint:gosec // an offset
	b = binary.BigEndian.AppendUint64(b, uint64(p.size)) //nolint:gosec // a size
	return binary.BigEndian.AppendUint32(b, p.sum)
}

func (p *Page) away() bool { return len(p.body) > 0 && p.body[0] == formatBlob }

// ifAway is the page where it is in a blob, and none else.
func (p *Page) ifAway() []*Page {
	if p.away() {
		return []*Page{p}
	}
	return nil
}

func (p *Page) place() (place, error) {
	if len(p.body) != placeBytes {
		return place{}, fmt.Errorf("page %d: %w: its place has %d bytes", p.First, errPage, len(p.body))
	}
	b := p.body[1:]
	//nolint:gosec // as written
	return place{uuid.UUID(b[:16]), uuid.UUID(b[16:32]), int64(binary.BigEndian.Uint64(b[32:])),
		int64(binary.BigEndian.Uint64(b[40:])), binary.BigEndian.Uint32(b[48:])}, nil //nolint:gosec // as written
}

// fetch gets the bodies of pages that are in blobs. Nobody deletes such a blob under who reads it: its row says that
// nothing names it from the commit on that deletes the first of its pages, and the sweep leaves it alone for an hour
// after that. A reader that has found a page row before has its bytes long before, or has failed.
func (p Pages) fetch(ctx context.Context, conn db.DBTX, pages []*Page) error {
	if len(pages) == 0 {
		return nil
	}
	type found struct {
		page *Page
		place
	}
	all := make([]found, len(pages))
	for i, page := range pages {
		at, err := page.place()
		if err != nil {
			return err
		}
		all[i] = found{page, at}
	}
	// Neighbours are read in one request.
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(slices.Compare(a.blobID[:], b.blobID[:]), cmp.Compare(a.off, b.off))
	})
	spans := make([]blob.Range, len(all))
	for i, f := range all {
		spans[i] = blob.Range{Key: BlobKey(f.orgID, f.blobID), Off: f.off, Len: f.size}
	}
	_, inTx := conn.(pgx.Tx)
	bodies, err := p.Blobs.Read(ctx, spans, inTx)
	if err != nil {
		return fmt.Errorf("read pages: %w", err)
	}
	for i, f := range all {
		if crc32.Checksum(bodies[i], castagnoli) != f.sum {
			return fmt.Errorf("page %d: %w: %s has other bytes from %d on", f.page.First, errPage, spans[i].Key, f.off)
		}
		f.page.body = bytes.Clone(bodies[i]) // it may be kept, and shall not keep its neighbours
	}
	return nil
}

// chunkAway is a chunk whose pages are in a blob, which no row names yet.
type chunkAway struct {
	*upload

	blobID uuid.UUID
	bytes  int64
	until  time.Time
	digest Digest
	rows   [][]any
}

// putAway writes the pages of a chunk to a blob; nil where they stay in the rows. Fault: blob.ErrUnavailable.
func (u *upload) putAway(ctx context.Context, rowBytes int64) (*chunkAway, error) {
	if u.blobs == nil || rowBytes < leastAway {
		return nil, nil
	}
	began, err := u.q.Clock(ctx, u.pool)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	c := &chunkAway{upload: u, until: began.Add(nameWithin), blobID: newBlobID(began)}
	body := c.pack(rowBytes)
	if len(body) < leastAway {
		return nil, nil
	}
	c.bytes = int64(len(body))
	if err := u.blobs.Put(ctx, c.key(), body); err != nil {
		return nil, fmt.Errorf("write pages: %w", err)
	}
	return c, nil
}

// newBlobID has the time of the database's clock: the sweep tells by it how old a blob is.
func newBlobID(at time.Time) uuid.UUID {
	id := cell.NewID()
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli())) //nolint:gosec // after 1970
	copy(id[:6], ms[2:])
	return id
}

func (c *chunkAway) key() string { return BlobKey(c.set.OrgID, c.blobID) }

// pack lays out the pages one after the other, and their rows.
func (c *chunkAway) pack(rowBytes int64) []byte {
	body, h := make([]byte, 0, rowBytes/2), sha256.New()
	s := sheets.Get().(*sheet)
	defer s.release()
	for next, count := 0, len(c.chunk.rows); next < count; {
		first := c.first() + int64(next)
		next = s.fill(next, count, c.row)
		h.Write(s.text[s.data:])
		s.compress()
		at := place{c.set.OrgID, c.blobID, int64(len(body)), int64(len(s.body)), crc32.Checksum(s.body, castagnoli)}
		body = append(body, s.body...)
		rows, raw := int32(s.rows), int32(len(s.text)) //nolint:gosec // a page is bounded
		c.rows = append(c.rows, []any{[16]byte(c.set.ID), first, rows, raw, at.encode()})
	}
	c.digest = sum(h)
	return body
}

var errLate = errors.New("a chunk took too long from its blob to its row")

// write stores the pages of the chunk, or where they are, and returns its digest. The row of the blob comes first:
// where the sweep has taken it, nothing else is written.
func (u *upload) write(ctx context.Context, tx pgx.Tx, away *chunkAway) (Digest, error) {
	if away == nil {
		return writePages(ctx, tx, u.set.ID, u.first(), len(u.chunk.rows), u.row)
	}
	named, err := u.q.BlobInsert(ctx, tx, db.BlobInsertParams{
		ID: away.blobID, OrgID: u.set.OrgID, SetID: u.set.ID, Bytes: away.bytes, NameUntil: away.until,
	})
	if err == nil && named == 0 {
		err = blob.ErrUnavailable.Because(errLate)
	}
	if err == nil {
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"flow", "page"}, pageColumns, pgx.CopyFromRows(away.rows))
	}
	if err != nil {
		return Digest{}, fmt.Errorf("write pages: %w", err)
	}
	return away.digest, nil
}

// drop deletes the blob of a chunk that was refused. Where that fails, the sweep finds it.
func (c *chunkAway) drop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	_ = c.blobs.Delete(ctx, c.key())
}

// dropTimeout bounds how long a refused chunk waits for that.
const dropTimeout = 5 * time.Second
