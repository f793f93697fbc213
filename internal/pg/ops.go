package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OpsRole is the role that may read the views of the schema ops, and nothing else of ours. Operators are members of it.
const OpsRole = "flowlane_ops"

// opsAccess is how far operators can read: is there a role, and may it read everything in the schema ops?
type opsAccess struct{ role, rights bool }

func readOpsAccess(ctx context.Context, db DB, role string) (a opsAccess, err error) {
	err = db.QueryRow(ctx, `
SELECT r.oid IS NOT NULL, r.oid IS NOT NULL AND coalesce(has_schema_privilege(r.oid, n.oid, 'USAGE'), false)
    AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'v'
        AND NOT has_table_privilege(r.oid, c.oid, 'SELECT'))
    AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid
        AND NOT has_function_privilege(r.oid, p.oid, 'EXECUTE'))
FROM (SELECT to_regrole($1)::oid AS oid) r LEFT JOIN pg_namespace n ON n.nspname = 'ops'`,
		role).Scan(&a.role, &a.rights)
	if err != nil {
		return a, fmt.Errorf("look for the role %s: %w", role, err)
	}
	return a, nil
}

// grantOps makes the role where there is none, and lets it read what is in the schema ops by now. What this user may
// not do is left to somebody who may: the service needs none of it.
func grantOps(ctx context.Context, db DB, role string) error {
	a, err := readOpsAccess(ctx, db, role)
	if err != nil || a.rights {
		return err
	}
	name := pgx.Identifier{role}.Sanitize()
	if !a.role {
		if err := makeRole(ctx, db, role); err != nil && !IsRefused(err) {
			return err
		}
		if a, err = readOpsAccess(ctx, db, role); err != nil || !a.role {
			return err
		}
	}
	for _, grant := range []string{"USAGE ON SCHEMA ops", "SELECT ON ALL TABLES IN SCHEMA ops",
		"EXECUTE ON ALL FUNCTIONS IN SCHEMA ops"} {
		if _, err := db.Exec(ctx, "GRANT "+grant+" TO "+name); err != nil && !IsRefused(err) {
			return fmt.Errorf("grant %s to %s: %w", grant, role, err)
		}
	}
	return nil
}

// OpsAdvice says what an administrator of a migrated database has to do before operators can read the schema ops; it is
// empty where nothing is missing.
func OpsAdvice(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	return opsAdvice(ctx, pool, OpsRole)
}

func opsAdvice(ctx context.Context, db DB, role string) (string, error) {
	a, err := readOpsAccess(ctx, db, role)
	switch {
	case err != nil:
		return "", err
	case !a.role:
		return fmt.Sprintf("Operators cannot read the views of the schema ops yet, because this database user may "+
			"not make roles. Let an administrator run CREATE ROLE %s NOLOGIN; "+
			"and then run `flowlane migrate up` again.", role), nil
	case !a.rights:
		return fmt.Sprintf("Operators cannot read the views of the schema ops yet, because this database user does "+
			"not own it. Run `flowlane migrate up` as its owner, or let the owner run GRANT USAGE ON SCHEMA ops TO "+
			"%[1]s; GRANT SELECT ON ALL TABLES IN SCHEMA ops TO %[1]s; "+
			"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ops TO %[1]s;", role), nil
	}
	return "", nil
}
