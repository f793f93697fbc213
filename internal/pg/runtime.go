package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// runtimeSchemas are those whose tables a running service reads and writes.
const runtimeSchemas = "flow, " + RiverSchema

// runtimeGrants is what a role needs that runs the service: the rows of all tables, and no right to change the tables.
var runtimeGrants = []string{
	"GRANT USAGE ON SCHEMA " + runtimeSchemas + ", ops TO %s",
	"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + runtimeSchemas + " TO %s",
	"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA " + runtimeSchemas + " TO %s",
	"GRANT SELECT ON ALL TABLES IN SCHEMA ops TO %s",
	"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ops TO %s",
	// What is made later by whoever migrates now, has the same rights.
	"ALTER DEFAULT PRIVILEGES IN SCHEMA " + runtimeSchemas + " GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO %s",
	"ALTER DEFAULT PRIVILEGES IN SCHEMA " + runtimeSchemas + " GRANT USAGE, SELECT ON SEQUENCES TO %s",
	"ALTER DEFAULT PRIVILEGES IN SCHEMA ops GRANT SELECT ON TABLES TO %s",
	"ALTER DEFAULT PRIVILEGES IN SCHEMA ops GRANT EXECUTE ON FUNCTIONS TO %s",
	// The clock, the versions of the schema, and what the audit log says; its trigger lets old rows be deleted.
	"REVOKE INSERT, UPDATE, DELETE ON flow.cell, flow.clock_offset FROM %s",
	"REVOKE INSERT, UPDATE, DELETE ON " + versionTable + ", " + RiverSchema + ".river_migration FROM %s",
	"REVOKE UPDATE ON flow.audit_log FROM %s",
	"REVOKE UPDATE, DELETE ON flow.identity FROM %s",
}

// RuntimeGrants returns the statements by which the roles of a service get their rights, with %s for that of
// GrantRuntime.
func RuntimeGrants() []string { return slices.Concat(runtimeGrants, requestGrants) }

// GrantRuntime gives the role by which a service connects to a migrated database all that it needs, and makes the role
// where there is none, without a login: users are members of it. It owns nothing, so it can change neither the schema
// nor the clock, nor rows of the audit log. What is migrated later by the same user needs no other call. pool is
// connected as the owner of the tables. Error: RoleError.
func GrantRuntime(ctx context.Context, pool *pgxpool.Pool, role string) error {
	var there, owner, same bool
	err := pool.QueryRow(ctx, `
SELECT to_regrole(quote_ident($1)) IS NOT NULL, pg_has_role(c.relowner, 'USAGE'),
    coalesce(c.relowner::regrole = to_regrole(quote_ident($1)), false)
FROM pg_class c
WHERE c.relname = 'batch' AND c.relnamespace = to_regnamespace('flow')`, role).Scan(&there, &owner, &same)
	switch {
	case err != nil:
		return fmt.Errorf("look for the role %s: %w", role, err)
	case same:
		return RoleError{role, "owns the tables of Flowlane: name another role, which is made if it is not there"}
	case !owner:
		return RoleError{role, "gets its rights from the owner of the tables: run this with the address of that user"}
	}
	if !there {
		if err := makeRole(ctx, pool, role); IsRefused(err) {
			return RoleError{role,
				"is not there, and this user may not make roles: let an administrator run CREATE ROLE " +
					pgx.Identifier{role}.Sanitize() + " NOLOGIN; and then run this again"}
		} else if err != nil {
			return err
		}
	}
	name := pgx.Identifier{role}.Sanitize()
	err = InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		for _, grant := range runtimeGrants {
			if _, err := tx.Exec(ctx, strings.ReplaceAll(grant, "%s", name)); err != nil {
				return fmt.Errorf("give the role %s its rights: %w", role, err)
			}
		}
		return grantRowSecurity(ctx, tx, name)
	})
	if IsRefused(err) {
		return RoleError{role, "must become a member of " + RequestRole + " and " + WorkerRole +
			", and this user may not see " +
			"to that: let an administrator run GRANT " + RequestRole + ", " + WorkerRole + " TO " + name +
			"; and then run this again"}
	}
	return err
}

// grantRowSecurity lets a role run requests and workers, where row-level security is set up.
func grantRowSecurity(ctx context.Context, tx pgx.Tx, name string) error {
	security, err := readRowSecurity(ctx, tx)
	if err != nil || !security.Roles {
		return err
	}
	_, err = tx.Exec(ctx, "GRANT "+RequestRole+", "+WorkerRole+" TO "+name)
	if err != nil {
		return fmt.Errorf("let requests and workers of the role %s see rows: %w", name, err)
	}
	return nil
}

// RoleError tells why a role cannot be the one that runs the service, and what to do.
type RoleError struct{ Role, Why string }

func (e RoleError) Error() string { return "the role " + e.Role + " " + e.Why }

// OwnsTables reports whether the user of db owns the tables of the service, or may act as their owner.
func OwnsTables(ctx context.Context, db DB) (bool, error) {
	var owns bool
	err := db.QueryRow(ctx, `
SELECT pg_has_role(relowner, 'USAGE') FROM pg_class
WHERE relname = 'batch' AND relnamespace = to_regnamespace('flow')`).Scan(&owns)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look who owns the tables: %w", err)
	}
	return owns, nil
}
