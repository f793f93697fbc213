package pg

import "github.com/jackc/pgx/v5/pgxpool"

// NewUnsecured is NewScoped where there is no row-level security.
func NewUnsecured(pool *pgxpool.Pool) *Scoped { return &Scoped{pool: pool} }

// For tests: the role is another than that of the server, which all databases share.
var (
	GrantOps     = grantOps
	OpsAdviceFor = opsAdvice
)
