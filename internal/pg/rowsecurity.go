package pg

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// RequestRole is the role in which requests run: row-level security shows it the rows of one organization alone.
	RequestRole = "flowlane_request"
	// WorkerRole sees all rows. Whoever runs the service is a member of both, and so is the owner of the tables.
	WorkerRole = "flowlane_worker"
)

// requestGrants is what requests need: the rows of the tables that the service writes. Of River's they add jobs.
var requestGrants = []string{
	"GRANT USAGE ON SCHEMA " + runtimeSchemas + " TO " + RequestRole,
	"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA flow TO " + RequestRole,
	"GRANT SELECT, INSERT, UPDATE ON " + RiverSchema + ".river_job, " + RiverSchema + ".river_queue TO " + RequestRole,
	"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA " + runtimeSchemas + " TO " + RequestRole,
	"REVOKE INSERT, UPDATE, DELETE ON flow.cell, flow.clock_offset, flow.identity, " + versionTable + " FROM " +
		RequestRole,
	"REVOKE UPDATE ON flow.audit_log FROM " + RequestRole,
}

// rowSecurity is how far row-level security is set up.
type rowSecurity struct {
	// Roles tells that both roles are there, Member that this user is a member of both, Tables that they are secured.
	Roles, Member, Tables bool
}

func readRowSecurity(ctx context.Context, db DB) (s rowSecurity, err error) {
	err = db.QueryRow(ctx, `
SELECT request IS NOT NULL AND worker IS NOT NULL,
    coalesce(pg_has_role(request, 'MEMBER') AND pg_has_role(worker, 'USAGE'), false),
    EXISTS (SELECT FROM pg_policy WHERE polname = 'request' AND polrelid = to_regclass('flow.batch'))
FROM (SELECT to_regrole($1)::oid AS request, to_regrole($2)::oid AS worker) r`, RequestRole, WorkerRole).
		Scan(&s.Roles, &s.Member, &s.Tables)
	if err != nil {
		return s, fmt.Errorf("look for row-level security: %w", err)
	}
	return s, nil
}

// secureRows makes the two roles and turns row-level security on for tables that lack it. A user who may not make roles
// leaves everything as it is: RowSecurityAdvice says so.
func secureRows(ctx context.Context, conn *pgxpool.Conn) error {
	if owns, err := OwnsTables(ctx, conn); err != nil || !owns {
		return err
	}
	for _, role := range []string{RequestRole, WorkerRole} {
		if err := joinRole(ctx, conn, role); IsRefused(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	// The policies bind the owner, too: one who is no member would see nothing.
	if s, err := readRowSecurity(ctx, conn); err != nil || !s.Member {
		return err
	}
	return InTx(ctx, conn, func(ctx context.Context, tx pgx.Tx) error {
		for _, sql := range slices.Concat(requestGrants, []string{"SELECT flow.secure_rows()"}) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("set up row-level security: %s: %w", sql, err)
			}
		}
		return nil
	})
}

// joinRole makes a role unless it is there, and this user a member of it.
func joinRole(ctx context.Context, db DB, role string) error {
	var there, member bool
	err := db.QueryRow(ctx, `
SELECT r IS NOT NULL, coalesce(pg_has_role(r, 'USAGE'), false) FROM (SELECT to_regrole($1)::oid AS r) r`, role).
		Scan(&there, &member)
	if err != nil {
		return fmt.Errorf("look for the role %s: %w", role, err)
	}
	if !there {
		if err := makeRole(ctx, db, role); err != nil {
			return err
		}
	}
	if member {
		return nil
	}
	if _, err := db.Exec(ctx, "GRANT "+role+" TO CURRENT_USER"); err != nil && !isThere(err) {
		return fmt.Errorf("become a member of the role %s: %w", role, err)
	}
	return nil
}

// RowSecurityAdvice says what is missing for requests of this user to see the rows of their organization alone; it is
// empty where they do.
func RowSecurityAdvice(ctx context.Context, db DB) (string, error) {
	s, err := readRowSecurity(ctx, db)
	switch {
	case err != nil:
		return "", err
	case !s.Roles || !s.Tables:
		return fmt.Sprintf("Requests are kept to their organization by queries alone, and not by row-level security "+
			"as well. Let an administrator run CREATE ROLE %[1]s NOLOGIN; CREATE ROLE %[2]s NOLOGIN; "+
			"and GRANT %[1]s, %[2]s TO the owner of the tables, WITH ADMIN OPTION, "+
			"and then run `flowlane migrate up` again.", RequestRole, WorkerRole), nil
	case !s.Member:
		return fmt.Sprintf("This database user is not a member of the roles %s and %s: run `flowlane migrate up "+
			"--runtime-role` with the role whose rights it has.", RequestRole, WorkerRole), nil
	}
	return "", nil
}
