// Package orgexport owns what an organization takes with it: all that it has, in a form that others can read. It
// promises that a new table is in it without a word, that no secret is, that no transaction of it is long, and that
// memory holds one row, page or slice of it, and 1 MiB. It must not know what the rows mean: what is packed in them,
// those open that packed it.
package orgexport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Name is what the operator's command is called in the audit log.
const Name = "org export"

// errDeleting refuses an organization that is deleted, or is being deleted.
var errDeleting = errors.New("it is deleted, or is being deleted: what is left of it is not all that it had")

// Opener writes what a row has packed as a JSON value, in one line. row is the rest of the row as a JSON object.
type Opener func(w io.Writer, row, packed []byte) error

// Service exports organizations.
type Service struct {
	Pool *pgxpool.Pool
	// Openers make columns of bytes readable, by table and name: "exchange.detail".
	Openers map[string]Opener
	// Records calls do with each record of a set of pages, in order; the record is good until do returns.
	Records func(ctx context.Context, conn db.DBTX, setID uuid.UUID, do func(record []byte) error) error
	// Results opens the results of a batch, one JSON object a line. Fault: NotFound.
	Results func(ctx context.Context, orgID, batchID uuid.UUID) (io.Reader, error)
	// Version is that of the program.
	Version string
	Now     func() time.Time
}

// Request says what is exported, and where to.
type Request struct {
	OrgID uuid.UUID
	To    io.Writer
	// Dir is where files that are larger than spoolMemory are laid aside until they are whole; empty for the system's
	// folder.
	Dir string
	// Progress is told now and then how many files of all are written, and how many rows; nil for nobody.
	Progress func(done, all, rows int64)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// manifestHead and manifestTail are what manifest.json says around the files.
type manifestHead struct {
	Organization manifestOrg `json:"organization"`
	Program      string      `json:"program"`
	Version      string      `json:"version"`
	BeganAt      time.Time   `json:"began_at"`
	EndedAt      time.Time   `json:"ended_at"`
}

type manifestOrg struct {
	ID   uuid.UUID `json:"id"`
	Name string    `json:"name"`
}

type manifestTail struct {
	// LeftOut says why there is nothing of a column, or of a table.
	LeftOut map[string]string `json:"left_out"`
}

// export is one under way.
type export struct {
	*Service
	Request
	*archive

	done, all int64
}

// Write writes the archive of an organization. Whatever the error, what was written is no whole archive. Errors:
// errDeleting, before or after it has begun; those of pgx where there is no such organization.
func (s *Service) Write(ctx context.Context, r Request) (Total, error) {
	org, err := s.begin(ctx, r.OrgID)
	if err != nil {
		return Total{}, err
	}
	head := manifestHead{Organization: manifestOrg{org.ID, org.Name}, Program: "flowlane", Version: s.Version,
		BeganAt: s.Now().UTC()}
	e := &export{Service: s, Request: r, archive: newArchive(ctx, r.To, r.Dir, head.BeganAt)}
	defer e.files.close()
	e.progress = e.report
	if err := e.write(ctx); err != nil {
		return Total{}, err
	}
	if err := s.check(ctx, s.Pool, r.OrgID); err != nil {
		return Total{}, err
	}
	tail, err := s.leftOut(ctx)
	if err != nil {
		return Total{}, err
	}
	head.EndedAt = s.Now().UTC()
	if err := e.close(head, tail); err != nil {
		return Total{}, fmt.Errorf("end the archive: %w", err)
	}
	return e.total, nil
}

// begin notes the export in the audit log before anything of it is out.
func (s *Service) begin(ctx context.Context, orgID uuid.UUID) (org db.FlowOrganization, err error) {
	ctx = account.AsOperator(ctx, orgID, Name)
	err = pg.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.check(ctx, tx, orgID); err != nil {
			return err
		}
		if org, err = db.New().OrgGet(ctx, tx, orgID); err != nil {
			return err //nolint:wrapcheck // the caller knows which
		}
		return account.Audit(ctx, tx, "organization", orgID.String())
	})
	return org, err //nolint:wrapcheck // says everything
}

func (s *Service) check(ctx context.Context, conn db.DBTX, orgID uuid.UUID) error {
	org, err := db.New().OrgGet(ctx, conn, orgID)
	if err == nil && org.Status != "active" && org.Status != "suspended" {
		err = errDeleting
	}
	return err //nolint:wrapcheck // the caller knows which
}

// leftOut is what an export has nothing of.
func (s *Service) leftOut(ctx context.Context) (manifestTail, error) {
	out := manifestTail{LeftOut: map[string]string{}}
	all, err := discover(ctx, s.Pool)
	if err != nil {
		return out, err
	}
	for name, f := range all {
		if why := apart[name]; why != "" {
			out.LeftOut[name] = why
			continue
		}
		for _, c := range f.columns {
			if why := s.left(name, c); why != "" {
				out.LeftOut[name+"."+c.name] = why
			}
		}
	}
	return out, nil
}

func (e *export) write(ctx context.Context) error {
	tables, err := e.tables(ctx, e.Pool)
	if err != nil {
		return err
	}
	files, err := db.New().ExportFiles(ctx, e.Pool, e.OrgID)
	if err != nil {
		return fmt.Errorf("count the files: %w", err)
	}
	e.all = files + int64(len(tables))
	for i := range tables {
		if err := e.part("tables/"+tables[i].name, func(w *spool) error {
			return e.writeTable(ctx, w, &tables[i],
				e.OrgID)
		}); err != nil {
			return err
		}
	}
	for _, list := range []lister{recordSets, batchesBrought} {
		err := e.eachParent(ctx, list, e.OrgID, func(found []parent) error {
			for _, p := range found {
				err := e.partOf(ctx, "records/", p.ID, func(w *spool) error { return e.writeRecords(ctx, w, p.Pages) })
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return e.eachParent(ctx, batches, e.OrgID, func(found []parent) error {
		for _, p := range found {
			if err := e.partOf(ctx, "results/", p.ID, func(w *spool) error {
				return e.writeResults(ctx, w,
					p.ID)
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// partOf adds a file of a batch or of a record set, unless that was deleted while it was read, by which some of its
// rows may have gone.
func (e *export) partOf(ctx context.Context, folder string, id uuid.UUID, fill func(w *spool) error) error {
	return e.part(folder+id.String(), func(w *spool) error {
		if err := fill(w); err != nil {
			return err
		}
		is, err := db.New().ExportIsThere(ctx, e.Pool, db.ExportIsThereParams{ID: id, OrgID: e.OrgID})
		if err == nil && !is {
			err = fault.Missing("Batch or record set")
		}
		return err //nolint:wrapcheck // says everything
	})
}

// part adds a file, and tells of it. What is gone by the time that it is read has none.
func (e *export) part(name string, fill func(w *spool) error) error {
	err := e.lines(name+".ndjson", func(w *spool) (bool, error) {
		err := fill(w)
		if fault.Is(err, fault.NotFound) {
			return false, nil
		}
		return true, err
	})
	e.done++
	e.report(e.total.Rows)
	return err
}

func (e *export) report(rows int64) {
	if e.Progress != nil {
		e.Progress(min(e.done, e.all), e.all, rows) // there may be more files than were counted
	}
}

func (e *export) writeRecords(ctx context.Context, w *spool, pages uuid.UUID) error {
	return e.Records(ctx, e.Pool, pages, func(record []byte) error { return writeLine(w, record) })
}

func (e *export) writeResults(ctx context.Context, w *spool, batchID uuid.UUID) error {
	r, err := e.Results(ctx, e.OrgID, batchID)
	if err == nil {
		_, err = io.Copy(w, r)
	}
	return err //nolint:wrapcheck // says everything
}

// parent is something whose rows, or records, are found by its id.
type parent struct {
	ID uuid.UUID
	// Size is about how many rows it has in a table, Pages where its records are.
	Size  int64
	Pages uuid.UUID
}

// lister lists parents of an organization behind an id.
type lister func(ctx context.Context, conn db.DBTX, orgID, behind uuid.UUID) ([]parent, error)

func recordSets(ctx context.Context, conn db.DBTX, orgID, behind uuid.UUID) ([]parent, error) {
	return parents(db.New().ExportSets(ctx, conn, db.ExportSetsParams{OrgID: orgID, Behind: behind,
		MaxRows: pieceRows}))
}

func batches(ctx context.Context, conn db.DBTX, orgID, behind uuid.UUID) ([]parent, error) {
	return parents(db.New().ExportBatches(ctx, conn, db.ExportBatchesParams{OrgID: orgID, Behind: behind,
		MaxRows: pieceRows}))
}

// batchesBrought are the batches that brought their records.
func batchesBrought(ctx context.Context, conn db.DBTX, orgID, behind uuid.UUID) ([]parent, error) {
	return parents(db.New().ExportBatchesBrought(ctx, conn, db.ExportBatchesBroughtParams{OrgID: orgID, Behind: behind,
		MaxRows: pieceRows}))
}

func parents[Row db.ExportSetsRow | db.ExportBatchesRow | db.ExportBatchesBroughtRow](rows []Row, err error) ([]parent,
	error) {
	out := make([]parent, len(rows))
	for i, r := range rows {
		out[i] = parent(r)
	}
	return out, err
}

// eachParent calls do with the parents of an organization, pieceRows at a time.
func (s *Service) eachParent(ctx context.Context, list lister, orgID uuid.UUID, do func([]parent) error) error {
	var last uuid.UUID
	for {
		found, err := list(ctx, s.Pool, orgID, last)
		if err != nil {
			return fmt.Errorf("list batches and record sets: %w", err)
		}
		if len(found) > 0 {
			last = found[len(found)-1].ID
			if err := do(found); err != nil {
				return err
			}
		}
		if len(found) < pieceRows {
			return nil
		}
	}
}

// writeLine writes a record as it was sent, but for the ends of lines that it may have between its parts.
func writeLine(w io.Writer, record []byte) error {
	if bytes.ContainsAny(record, "\r\n") {
		var line bytes.Buffer
		if err := json.Compact(&line, record); err != nil {
			return err //nolint:wrapcheck // was checked when it came
		}
		record = line.Bytes()
	}
	_, err := w.Write(record)
	if err == nil {
		_, err = w.Write([]byte{'\n'})
	}
	return err //nolint:wrapcheck // names the file
}
