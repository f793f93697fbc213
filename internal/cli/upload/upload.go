// Package upload sends rows to a record set: in chunks, two at a time, from where an earlier attempt stopped, and it
// checks that what the server holds is what was read. It knows no file format and prints nothing.
package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"flowlane/internal/cli/remote"
	"flowlane/internal/recordset"
)

// Rows yields rows, each the text of a JSON object that is valid until the next call, then io.EOF.
type Rows interface {
	Next() ([]byte, error)
}

// Source opens the same rows anew each time; they are read twice, and nothing is sent before all of them were read
// once.
type Source func() (Rows, io.Closer, error)

// Options tune an upload; the zero value is good.
type Options struct {
	// Senders is how many chunks are under way at once; 0 means 2.
	Senders int
	// ChunkSize is records per chunk; 0 chooses one by the size of the rows.
	ChunkSize int
	// Checkpoint remembers how far the upload came; nil starts anew each time.
	Checkpoint *Checkpoint
	// Keep leaves the Checkpoint as it is when the set is sealed, for a caller that forgets it when it has used the
	// set: the same call then returns the same set, and the batch that used it.
	Keep bool
	// Progress is told after every chunk, by one goroutine at a time.
	Progress func(Progress)
}

// Progress is how far an upload came.
type Progress struct {
	RecordSetID string
	// Chunks and Records are the whole, Sent... what the server has; Bytes is what this attempt sent.
	Chunks, SentChunks   int
	Records, SentRecords int64
	Bytes                int64
	// Resumed tells that an earlier attempt had begun.
	Resumed bool
}

// Result is a finished upload.
type Result struct {
	RecordSetID string `json:"record_set_id"`
	Records     int64  `json:"records"`
	ContentHash string `json:"content_hash"`
	// BatchID is the batch that has used the set of an earlier attempt, with Keep; empty for none.
	BatchID string `json:"-"`
}

// chunk is one body, ready to be sent.
type chunk struct {
	index   int
	records int64
	body    []byte
}

// upload is one attempt.
type upload struct {
	client *remote.Client
	opts   Options
	survey survey
	setID  string
	// batchID is the batch that has used the set.
	batchID string

	// had are the chunks of an earlier attempt.
	had map[int]bool

	mu       sync.Mutex
	done     map[int]bool
	progress Progress
	digests  []recordset.Digest
	buffers  sync.Pool
}

// recordSet is what an upload needs to know of one.
type recordSet struct {
	ID          string `json:"id"`
	Status      string `json:"status"`
	ChunkSize   int    `json:"chunk_size"`
	ContentHash string `json:"content_hash"`
	BatchID     string `json:"batch_id"`
}

const setsPath = "/data/record-sets"

// Run uploads and seals. When it fails half-way, the same call goes on from there, if there is a Checkpoint.
func Run(ctx context.Context, client *remote.Client, source Source, opts Options) (Result, error) {
	if opts.Senders <= 0 {
		opts.Senders = 2
	}
	u := &upload{client: client, opts: opts, done: map[int]bool{}}
	u.buffers.New = func() any { return new([]byte) }
	var err error
	if u.survey, err = measure(ctx, source, opts.ChunkSize); err != nil {
		return Result{}, err
	}
	sealed, err := u.resume(ctx)
	if err != nil {
		return Result{}, err
	}
	if u.setID == "" {
		if err := u.create(ctx); err != nil {
			return Result{}, err
		}
	}
	if u.batchID != "" {
		return Result{RecordSetID: u.setID, Records: u.survey.records, BatchID: u.batchID}, nil
	}
	u.begin()
	if err := u.send(ctx, source, sealed); err != nil {
		return Result{}, err
	}
	return u.seal(ctx)
}

func (u *upload) create(ctx context.Context) error {
	set, err := remote.Call[recordSet](ctx, u.client, remote.Request{Method: http.MethodPost, Path: setsPath},
		map[string]int{"chunk_size": u.survey.chunkSize})
	if err != nil {
		return u.client.Explain("create the record set", err)
	}
	u.setID = set.ID
	return u.opts.Checkpoint.save(u.setID, u.survey.chunkSize, nil)
}

// resume finds out how far an earlier attempt came. sealed tells that only its last step is missing.
func (u *upload) resume(ctx context.Context) (sealed bool, err error) {
	m := u.opts.Checkpoint.load()
	if m.RecordSetID == "" || (u.opts.ChunkSize != 0 && m.ChunkSize != u.opts.ChunkSize) {
		return false, nil
	}
	set, err := remote.Get[recordSet](ctx, u.client, setsPath+"/"+url.PathEscape(m.RecordSetID))
	if remote.Status(err) == http.StatusNotFound {
		return false, nil // expired, deleted, or another organization's
	}
	if err != nil {
		return false, u.client.Explain("read the record set of the earlier attempt", err)
	}
	if set.Status == "consumed" && (!u.opts.Keep || set.BatchID == "") || set.ChunkSize != m.ChunkSize {
		return false, nil
	}
	u.setID, u.batchID = set.ID, set.BatchID
	u.survey.chunkSize = set.ChunkSize
	for _, index := range m.Done {
		u.done[index] = true
	}
	u.had = maps.Clone(u.done)
	u.progress.Resumed = true
	return set.Status == "sealed", nil
}

// begin fills in the whole of the progress.
func (u *upload) begin() {
	u.progress.RecordSetID = u.setID
	u.progress.Records = u.survey.records
	u.progress.Chunks = int((u.survey.records + int64(u.survey.chunkSize) - 1) / int64(u.survey.chunkSize))
	u.digests = make([]recordset.Digest, u.progress.Chunks)
}

// send reads the rows again, hashes every chunk, and sends those that the server does not have.
func (u *upload) send(ctx context.Context, source Source, sealed bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan chunk)
	var senders sync.WaitGroup
	for range u.opts.Senders {
		senders.Go(func() {
			for c := range queue {
				if err := u.sendOne(ctx, c); err != nil {
					cancel(err)
				}
				u.buffers.Put(&c.body)
			}
		})
	}
	err := u.read(ctx, source, func(c chunk) error {
		if sealed || u.had[c.index] {
			u.buffers.Put(&c.body)
			return u.note(c, false)
		}
		select {
		case queue <- c:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	close(queue)
	senders.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause //nolint:wrapcheck // explained where it arose
	}
	return err
}

func (u *upload) sendOne(ctx context.Context, c chunk) error {
	err := remote.Retry(ctx, func() error { return u.client.AppendChunk(ctx, u.setID, c.body) })
	if err != nil {
		return u.client.Explain("upload chunk "+strconv.Itoa(c.index), err)
	}
	return u.note(c, true)
}

// note counts a chunk that the server has.
func (u *upload) note(c chunk, sent bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress.SentChunks++
	u.progress.SentRecords += c.records
	if sent {
		u.progress.Bytes += int64(len(c.body))
		u.done[c.index] = true
		if err := u.opts.Checkpoint.save(u.setID, u.survey.chunkSize, u.done); err != nil {
			return err
		}
	}
	if u.opts.Progress != nil {
		u.opts.Progress(u.progress)
	}
	return nil
}

// seal ends the upload and compares hashes.
func (u *upload) seal(ctx context.Context) (Result, error) {
	set, err := remote.Call[recordSet](ctx, u.client, remote.Request{Method: http.MethodPost, Path: setsPath + "/" +
		url.PathEscape(u.setID) + "/seal",
		Repeat: true}, map[string]int64{"expected_count": u.survey.records})
	if err != nil {
		if remote.Status(err) == http.StatusConflict {
			u.opts.Checkpoint.Forget() // what is remembered does not fit the server: start anew
		}
		return Result{}, u.client.Explain("seal the record set "+u.setID, err)
	}
	if !u.opts.Keep {
		u.opts.Checkpoint.Forget()
	}
	local := recordset.ContentHash(u.digests)
	if got := set.ContentHash; got != local {
		u.opts.Checkpoint.Forget()
		return Result{}, fmt.Errorf("record set %s holds other rows than the file (content hash %s, expected %s): "+
			"delete it and upload again",
			u.setID, got, local)
	}
	return Result{RecordSetID: u.setID, Records: u.survey.records, ContentHash: local}, nil
}

// errChanged: the rows are not those that were read first.
var errChanged = errors.New("the file has changed while it was read; upload it again")
