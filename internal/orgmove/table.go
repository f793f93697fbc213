package orgmove

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg"
)

// domains are what the organization's calls are counted by: its provider accounts, and the hosts, credentials and
// organizations of unmetered budgets. ORG stands for the id of the organization.
const domains = `(SELECT tenancy_id FROM flow.tenant WHERE org_id = ORG
    UNION SELECT tenancy_id FROM flow.credential WHERE org_id = ORG AND tenancy_id IS NOT NULL
    UNION SELECT tenancy_id FROM flow.domain WHERE org_id = ORG
    UNION SELECT domain FROM flow.budget_org WHERE org_id = ORG
    UNION SELECT domain FROM flow.lane_batch WHERE org_id = ORG
    UNION SELECT domain FROM flow.call WHERE org_id = ORG)`

const ofBatches = "batch_id IN (SELECT id FROM flow.batch WHERE org_id = ORG)"

// found says how rows of an organization are found where no column says whose they are, or that alone does not.
var found = map[string]string{
	"organization": "id = ORG",
	"record_chunk": "record_set_id IN (SELECT id FROM flow.record_set WHERE org_id = ORG)",
	"page": "set_id IN (SELECT id FROM flow.record_set WHERE org_id = ORG " +
		"UNION SELECT page_set FROM flow.batch WHERE org_id = ORG)",
	"batch_vars": ofBatches, "slice": ofBatches, "job": ofBatches, "part": ofBatches, "fragment": ofBatches,
	"element": ofBatches, "inherited": ofBatches, "kept_key": ofBatches, "exchange_batch": ofBatches,
	"domain": "tenancy_id IN " + domains, "domain_limit": "tenancy_id IN " + domains,
	"budget": "domain IN " + domains, "ledger": "domain IN " + domains, "rolling": "domain IN " + domains,
	// Whether everything is paused is each cell's own.
	"pause": "(org_id = ORG OR org_id IS NULL AND domain IN " + domains + ") " +
		"AND (operator IS DISTINCT FROM 'everything' OR status <> 'active')",
}

// shared are tables of which the other cell may have some rows, of the time when the organization was there before.
var shared = map[string]bool{"domain": true, "domain_limit": true, "budget": true, "ledger": true, "rolling": true}

// auditLog goes by itself, again where that was cut off.
const auditLog = "audit_log"

// apart are the tables whose rows do not go with the others, each with the reason.
var apart = map[string]string{
	"audit_log":       "goes once the organization is there: its rows cannot be taken back",
	"blob":            "an organization with large bodies in a store is refused",
	"cell":            "of the installation",
	"clock_offset":    "of the installation",
	"clock_watch":     "of the installation",
	"deletion":        "what was deleted there stays",
	"due":             "goes as it was when all was copied, and is laid out when the organization is there",
	"identity":        "of the installation",
	"move":            "of the move itself",
	"move_name":       "of the move itself",
	"retention_clock": "of the installation",
	"root_key":        "of the installation",
	"schema_version":  "of the installation",
	"session":         "a cookie belongs to the host of a cell: people sign in again",
}

// table is one whose rows go.
type table struct {
	name string
	// columns are those that are written, quoted; same are those of them that stay as they are (see numbers), and where
	// finds the rows.
	columns, same, where string
}

// tablesOf lists the tables whose rows go, each behind those that it refers to. It fails for a table that nobody has
// said anything about.
func tablesOf(ctx context.Context, db pg.DB, orgID uuid.UUID) ([]table, error) {
	type row struct {
		Name    string
		Columns string
		Org     bool
		Refers  []string
	}
	rows, err := db.Query(ctx, `
SELECT c.relname::text AS name, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
        FILTER (WHERE a.attgenerated = '') AS columns,
    bool_or(a.attname = 'org_id') AS org,
    ARRAY(SELECT DISTINCT r.relname::text FROM pg_constraint k JOIN pg_class r ON r.oid = k.confrelid
        WHERE k.conrelid = c.oid AND k.contype = 'f' AND r.oid <> c.oid) AS refers
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'flow'::regnamespace AND c.relkind IN ('r', 'p')
GROUP BY c.oid, c.relname ORDER BY c.relname`)
	var all []row
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	}
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	var out []table
	done := map[string]bool{}
	for name := range apart {
		done[name] = true
	}
	for n := -1; len(out) > n; {
		n = len(out)
		for _, r := range all {
			if done[r.Name] || slices.ContainsFunc(r.Refers, func(to string) bool { return !done[to] }) {
				continue
			}
			where, ok := found[r.Name]
			switch {
			case !ok && !r.Org:
				return nil, fmt.Errorf("nobody has said how rows of an organization are found in the table %s", r.Name)
			case !ok:
				where = "org_id = ORG"
			}
			done[r.Name] = true
			out = append(out, table{r.Name, r.Columns, unnumbered(r.Name, r.Columns),
				strings.ReplaceAll(where, "ORG", "'"+orgID.String()+"'::uuid")})
		}
	}
	for _, r := range all {
		if !done[r.Name] {
			return nil, fmt.Errorf("the tables that %s refers to refer to it", r.Name)
		}
	}
	return out, nil
}

// sum is how many rows an organization has in a table, and a checksum of all that is in them.
type sum struct {
	Rows   int64
	Digest string
}

func (t table) sum(ctx context.Context, db pg.DB) (s sum, err error) {
	err = db.QueryRow(ctx, "SELECT count(*), coalesce(sum(hashtextextended(ROW("+t.same+
		")::text, 0)::numeric), 0)::text FROM flow."+t.name+" WHERE "+t.where).Scan(&s.Rows, &s.Digest)
	if err != nil {
		return s, fmt.Errorf("sum up the table %s: %w", t.name, err)
	}
	return s, nil
}
