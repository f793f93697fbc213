package recordset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/blob"
)

const (
	// SweepKind is the kind of the one due row that has blobs deleted that nothing names.
	SweepKind = "blob_sweep"
	// sweepAge is how old a blob is that is looked at, and how long nothing has named one that is deleted: whoever
	// was about to name it, or to read it, is done by then.
	sweepAge = time.Hour
	// sweepStep is how many blobs are looked at, or deleted, at once.
	sweepStep = 1000
)

// DeleteUnnamed deletes some of the blobs that nothing has named for an hour, and reports whether there may be more.
// Their rows go once the objects have: who is cut off in between does it again. Fault: blob.ErrUnavailable.
func (s *Service) DeleteUnnamed(ctx context.Context) (more bool, err error) {
	rows, err := s.q.BlobsUnnamed(ctx, s.pool, db.BlobsUnnamedParams{GraceSeconds: sweepAge.Seconds(),
		MaxRows: sweepStep})
	if err != nil || len(rows) == 0 {
		return false, wrap(err, "look for blobs that nothing names")
	}
	keys, ids := make([]string, len(rows)), make([]uuid.UUID, len(rows))
	for i, r := range rows {
		keys[i], ids[i] = BlobKey(r.OrgID, r.ID), r.ID
	}
	if err := s.blobs.Delete(ctx, keys...); err != nil {
		return false, wrap(err, "sweep")
	}
	_, err = s.q.BlobsForget(ctx, s.pool, ids)
	return len(rows) == sweepStep, wrap(err, "forget blobs")
}

// ClaimUnnamed looks for blobs that an upload left behind which ended before it had named them, some behind a key; it
// returns the last one that it looked at, empty where there are no more. What it finds is claimed for DeleteUnnamed
// by a row with its id: an upload that is about to name it has its own row in the way or finds this one, so that
// never both have it. Fault: blob.ErrUnavailable.
func (s *Service) ClaimUnnamed(ctx context.Context, behind string) (last string, claimed int64, err error) {
	keys, err := s.blobs.List(ctx, "", behind, sweepStep)
	if err != nil || len(keys) == 0 {
		return "", 0, wrap(err, "sweep")
	}
	now, err := s.q.Clock(ctx, s.pool)
	if err != nil {
		return "", 0, wrap(err, "read the clock")
	}
	var in db.BlobsClaimParams
	for _, key := range keys {
		orgID, id, ok := parseKey(key)
		if ok && now.Sub(time.Unix(id.Time().UnixTime())) > sweepAge {
			in.Ids, in.OrgIds = append(in.Ids, id), append(in.OrgIds, orgID)
		}
	}
	if claimed, err = s.q.BlobsClaim(ctx, s.pool, in); err != nil {
		return "", 0, wrap(err, "claim blobs")
	}
	if len(keys) < sweepStep {
		return "", claimed, nil
	}
	return keys[len(keys)-1], claimed, nil
}

// parseKey reads the key of a blob; not ok for an object that somebody else has put there.
func parseKey(key string) (orgID, id uuid.UUID, ok bool) {
	org, name, _ := strings.Cut(key, "/")
	orgID, err := uuid.Parse(org)
	id, err2 := uuid.Parse(name)
	return orgID, id, errors.Join(err, err2) == nil && id.Version() == 7 && BlobKey(orgID, id) == key
}

var errNoBlobs = errors.New("the organization has bodies in a store: set --blob-url")

// EraseBlobs deletes some objects of an organization that is deleted, those that no row knows of as well, and returns
// how many; 0 once none is left. Nobody reads them any more; the rows are left to the caller. Nothing of one that went
// to another cell, which may keep its bodies under the same keys: it had none when it went, and what its
// uploads left behind here is found by the sweep. Fault: blob.ErrUnavailable.
func (s *Service) EraseBlobs(ctx context.Context, orgID uuid.UUID) (n int64, err error) {
	moved, err := s.q.BlobsMoved(ctx, s.pool, orgID)
	if err != nil || moved {
		return 0, wrap(err, "look whether the organization has moved")
	}
	if s.blobs == nil {
		has, err := s.q.BlobsOfOrg(ctx, s.pool, orgID)
		if err == nil && has {
			err = errNoBlobs
		}
		return 0, wrap(err, "erase bodies")
	}
	keys, err := s.blobs.List(ctx, orgID.String()+"/", "", sweepStep)
	if err == nil && len(keys) > 0 {
		err = s.blobs.Delete(ctx, keys...)
	}
	return int64(len(keys)), wrap(err, "erase bodies")
}

// CheckBlobs fails where rows name bodies of a store and this process has none.
func CheckBlobs(ctx context.Context, conn db.DBTX, blobs *blob.Cache) error {
	if blobs != nil {
		return nil
	}
	has, err := db.New().BlobsAny(ctx, conn)
	if err == nil && has {
		err = errors.New("the database has bodies in a store: set --blob-url or FLOWLANE_BLOB_URL to its address")
	}
	return wrap(err, "look for bodies in a store")
}

func wrap(err error, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
