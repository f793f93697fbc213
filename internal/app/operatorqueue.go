package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

// queueRows is how many rows of a view the page shows.
const queueRows = 50

//go:embed operatorqueue.html
var queueText string

//go:embed operatorqueue.css
var queueStyle string

var queueTemplate = template.Must(template.New("queue").Parse(queueText))

// queuePolicy lets the page have its style, and nothing else: it runs no script and loads nothing.
var queuePolicy = func() string {
	sum := sha256.Sum256([]byte(queueStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// queueView is one table of the page.
type queueView struct {
	// Name is that of the view in ops.
	Name, About string
	Columns     []queueColumn
	Rows        [][]string
	More        bool
}

type queueColumn struct{ Name, About string }

type queueRead func(q *db.Queries, ctx context.Context, conn db.DBTX, most int32) ([][]byte, error)

var queueReads = []struct {
	name, about string
	read        queueRead
}{
	{"queue", "", (*db.Queries).OpsQueue},
	{"call_in_flight", "", (*db.Queries).OpsCalls},
	{"unknown_outcome", "", (*db.Queries).OpsUnknown},
	{"hold", "", (*db.Queries).OpsPauses},
	{"budget_window", "", (*db.Queries).OpsBudgets},
	{"retry_storm", "", (*db.Queries).OpsRetries},
	{"due", "What is to be done and when, by its kind.", (*db.Queries).OpsDue},
	{"due_late", "", (*db.Queries).OpsLate},
	{"river_backlog", "", (*db.Queries).OpsJobs},
	{"xmin_holder", "", (*db.Queries).OpsHolders},
	{"retention_debt", "", (*db.Queries).OpsRetention},
	{"replication", "", (*db.Queries).OpsReplication},
	{"table_health", "", (*db.Queries).OpsTables},
}

// showQueue shows operators the views of ops: what waits, what is under way, in doubt, held or late, and River's jobs.
func (a *App) showQueue(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	views, at, err := a.readQueue(ctx)
	var page bytes.Buffer
	if err == nil {
		err = queueTemplate.Execute(&page, map[string]any{
			"Views": views, "At": at.UTC().Format(time.RFC3339),
			"Style": template.CSS(queueStyle), //nolint:gosec // ours
		})
	}
	if err != nil {
		a.cfg.Log.WarnContext(ctx, "the page of operators cannot be made", "error", err)
		answer(w, http.StatusServiceUnavailable, "unavailable", "the database does not answer; the log says why")
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", queuePolicy)
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(page.Bytes()) // the reader has gone
}

// readQueue reads all views as of one moment.
func (a *App) readQueue(ctx context.Context) (views []queueView, at time.Time, err error) {
	tx, err := a.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, at, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing was changed
	q := db.New()
	if at, err = q.Clock(ctx, tx); err != nil {
		return nil, at, fmt.Errorf("read the clock: %w", err)
	}
	comments, err := q.OpsComments(ctx, tx)
	if err != nil {
		return nil, at, fmt.Errorf("read what the views say: %w", err)
	}
	about := map[[2]string]string{}
	for _, c := range comments {
		about[[2]string{c.ViewName, c.ColumnName}] = c.Description
	}
	for _, r := range queueReads {
		found, err := r.read(q, ctx, tx, queueRows+1)
		if err != nil {
			return nil, at, fmt.Errorf("read ops.%s: %w", r.name, err)
		}
		v := queueView{Name: r.name, About: r.about + about[[2]string{r.name, ""}], More: len(found) > queueRows}
		for _, text := range found[:min(len(found), queueRows)] {
			names, values, err := members(text)
			if err != nil {
				return nil, at, err
			}
			if v.Columns == nil {
				for _, name := range names {
					v.Columns = append(v.Columns, queueColumn{name, about[[2]string{r.name, name}]})
				}
			}
			v.Rows = append(v.Rows, values)
		}
		views = append(views, v)
	}
	return views, at, nil
}

// members are those of a JSON object of plain values, in its order, as text.
func members(object []byte) (names, values []string, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		return nil, nil, fmt.Errorf("read a row: %w", err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("read a row: %w", err)
		}
		value, err := d.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("read a row: %w", err)
		}
		text := ""
		if value != nil {
			text = fmt.Sprint(value)
		}
		names, values = append(names, fmt.Sprint(name)), append(values, text)
	}
	return names, values, nil
}

// login lets in who brings the token as a browser does: as the password, under any name. Where there is no token, the
// page is for addresses of this machine alone, which no name of another site leads to.
func (o Operator) login(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(o.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		got := sha256.Sum256([]byte(password))
		switch {
		case o.Token == "" && !local(r.Host):
			answer(w, http.StatusForbidden, "forbidden", "open it by its address on this machine")
		case o.Token != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			w.Header().Set("WWW-Authenticate",
				`Basic realm="Flowlane, the operator token as the password", charset="UTF-8"`)
			answer(w, http.StatusUnauthorized, "unauthorized", "send the operator token as the password")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// local reports whether the host of a request is an address of this machine, or localhost.
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}
