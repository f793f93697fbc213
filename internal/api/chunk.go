package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-faster/jx"
	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/api/violation"
	"flowlane/internal/fault"
	"flowlane/internal/recordset"
)

// chunkRoute takes chunk uploads out before the generated server: a chunk of 16 MiB is parsed once and in place, by the
// domain, instead of becoming 50,000 values first. Security, limits, ids and errors are the same code as everywhere.
type chunkRoute struct {
	next http.Handler
	sec  security
	errs errorHandler
	sets chunkStore
	// places bounds how many chunks are in memory at once; further uploads wait.
	places *places
}

// chunkStore is what chunkRoute needs of record sets.
type chunkStore interface {
	// TakesChunks says whether a set takes chunks now. Faults: NotFound; Conflict.
	TakesChunks(ctx context.Context, orgID, id uuid.UUID) error
	// Append accepts one chunk and must not keep the body.
	Append(ctx context.Context, orgID, id uuid.UUID, body []byte) (recordset.ChunkResult, error)
}

// uploadsAtOnce times 16 MiB is the most memory that bodies of chunks take.
const uploadsAtOnce = 8

func (c chunkRoute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := exchangeOf(r.Context()).route
	if route.Name() != oas.AppendRecordsOperation {
		c.next.ServeHTTP(w, r)
		return
	}
	result, err := c.accept(r, route.Args()[0])
	if err != nil {
		c.errs.fail(r.Context(), w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	var e jx.Encoder
	result.Encode(&e)
	_, _ = w.Write(e.Bytes())
}

// chunkBuffers holds the bodies of chunks for reuse.
var chunkBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (c chunkRoute) accept(r *http.Request, id string) (*oas.RecordChunkResult, error) {
	ctx, setID, err := c.expect(r, id)
	if err != nil {
		exchangeOf(r.Context()).unread = true
		return nil, err
	}
	orgID := account.FromContext(ctx).OrgID
	held, err := c.places.take(ctx, orgID)
	if err != nil {
		return nil, err
	}
	defer held.release()
	buf := chunkBuffers.Get().(*[]byte)
	defer chunkBuffers.Put(buf)
	body, err := readAll(lentBody{rawBody(r), held}, r.ContentLength, recordset.MaxBodyBytes, (*buf)[:0])
	if err != nil {
		exchangeOf(r.Context()).unread = errors.Is(err, errPlaceWanted)
		return nil, err
	}
	*buf = body
	if len(body) == 0 {
		return nil, fault.Invalidated(violation.Missing("body"))
	}
	res, err := c.sets.Append(ctx, orgID, setID, body)
	if err != nil {
		return nil, err
	}
	return &oas.RecordChunkResult{
		RecordSetID: res.RecordSetID.String(), ChunkIndex: res.ChunkIndex, RecordsReceived: res.RecordsReceived,
		Inserted: res.Inserted, ReceivedCount: int(res.ReceivedCount), Replay: res.Replay,
	}, nil
}

// lentBody is a body for as long as nobody has a better right to its place. Fault: RateLimited.
type lentBody struct {
	io.Reader

	held *place
}

var errPlaceWanted = &fault.Error{
	Code: fault.RateLimited, RetryAfter: placeTurn,
	Detail: fmt.Sprintf("Others wait, and the chunk has not come within %.0f seconds: send it again, or smaller ones",
		placeTurn.Seconds()),
}

func (b lentBody) Read(p []byte) (int, error) {
	if b.held.yields(time.Now()) {
		return 0, errPlaceWanted
	}
	return b.Reader.Read(p) //nolint:wrapcheck // a reader
}

// expect refuses what can be refused without the body, so that it takes no place, and returns the context with its
// caller.
func (c chunkRoute) expect(r *http.Request, id string) (context.Context, uuid.UUID, error) {
	ctx, err := c.sec.request(r, oas.AppendRecordsOperation)
	if err != nil {
		return nil, uuid.Nil, err
	}
	setID, err := pathID("Record set", id)
	if err != nil {
		return nil, uuid.Nil, err
	}
	if err := refuseEncoded(r); err != nil {
		return nil, uuid.Nil, err
	}
	if err := refuseLarge(r.ContentLength, recordset.MaxBodyBytes); err != nil {
		return nil, uuid.Nil, err
	}
	switch {
	case r.ContentLength == 0:
		return nil, uuid.Nil, fault.Invalidated(violation.Missing("body"))
	case !isJSON(r):
		return nil, uuid.Nil, errNotJSON
	}
	return ctx, setID, c.sets.TakesChunks(ctx, account.FromContext(ctx).OrgID, setID)
}

// documentedOnly stands in the generated interface for the operation that chunkRoute serves.
type documentedOnly struct{}

func (documentedOnly) AppendRecords(context.Context, *oas.RecordChunk, oas.AppendRecordsParams) (*oas.RecordChunkResult,
	error) {
	return nil, errors.New("api: a chunk reached the generated server; chunkRoute must take it first")
}

// rawBody is the body before it is checked: a chunk is checked while it is parsed.
func rawBody(r *http.Request) io.Reader {
	if lazy, ok := r.Body.(*lazyBody); ok {
		return lazy.from
	}
	return r.Body
}
