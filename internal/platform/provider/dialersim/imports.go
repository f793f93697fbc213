package dialersim

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// importsKept is how long an import can be asked for, on the account's clock.
	importsKept = 24 * time.Hour
	// maxImports bounds the memory of one list: beyond it the oldest go early.
	maxImports = 200_000
)

// importRecord is an accepted import. It does not change once it is kept.
type importRecord struct {
	id, list          string
	receivedAt        time.Time
	doneAt            time.Time // of an asynchronous import; zero means done at once
	rows              int
	firstKey, lastKey string
	digest            string
	rejected          []rejection
	arrivals          arrivalLog // only until the import is accepted
}

// keepImport makes an import visible, and forgets those of its list that are too old.
func (a *account) keepImport(l *list, rec *importRecord) {
	horizon := rec.receivedAt.Add(-importsKept)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.imports[rec.id] = rec
	l.mu.Lock()
	defer l.mu.Unlock()
	old := 0
	for old < len(l.imports) && (l.imports[old].receivedAt.Before(horizon) || len(l.imports)-old >= maxImports) {
		delete(a.imports, l.imports[old].id)
		l.imports[old] = nil
		old++
	}
	l.imports = append(l.imports[old:], rec)
	// Two calls may be accepted in one order and come here in the other.
	for i := len(l.imports) - 1; i > 0 && rec.receivedAt.Before(l.imports[i-1].receivedAt); i-- {
		l.imports[i-1], l.imports[i] = l.imports[i], l.imports[i-1]
	}
}

// readImport answers how far an import is, with its row results when it is done. A synchronous import can be asked for
// as well, by a client that lost the answer.
func (c *call) readImport() {
	c.acct.mu.Lock()
	rec := c.acct.imports[c.r.PathValue("import")]
	c.acct.mu.Unlock()
	now := c.sim.now(c.set)
	if rec == nil || rec.receivedAt.Before(now.Add(-importsKept)) {
		c.refuse(http.StatusNotFound, refusal{Fault: "unknown_import",
			Message: "There is no such import, or it is older than 24 hours."})
		return
	}
	if !c.spend() {
		return
	}
	c.accept(0)
	c.answer(http.StatusOK, rec.appendState(nil, c.now.Before(rec.doneAt)))
}

func (rec *importRecord) appendState(to []byte, running bool) []byte {
	to = append(to, `{"state":`...)
	if running {
		to = append(to, `"running"`...)
	} else {
		to = append(to, `"done"`...)
	}
	to = append(to, `,"list":`...)
	to = appendString(to, []byte(rec.list))
	to = append(to, `,"received_at":"`...)
	to = append(rec.receivedAt.AppendFormat(to, time.RFC3339Nano), '"', ',')
	if running {
		return append(append(append(to, `"import_id":"`...), rec.id...), `"}`...)
	}
	return rec.appendCounts(to)
}

// appendCounts appends the members of an upload's answer and the closing brace.
func (rec *importRecord) appendCounts(to []byte) []byte {
	to = append(append(append(to, `"import_id":"`...), rec.id...), `","received":`...)
	to = strconv.AppendInt(to, int64(rec.rows), 10)
	to = append(to, `,"accepted":`...)
	to = strconv.AppendInt(to, int64(rec.rows-len(rec.rejected)), 10)
	to = append(to, `,"rejected":[`...)
	for i, r := range rec.rejected {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, `{"row":`...)
		to = strconv.AppendInt(to, int64(r.row), 10)
		to = append(to, `,"code":`...)
		to = appendString(to, []byte(r.rule.Code))
		to = append(to, `,"reason":`...)
		to = append(appendString(to, []byte(r.rule.Reason)), '}')
	}
	return append(to, "]}"...)
}

// listImports answers the imports of a list that were received at or after the time since, oldest first.
func (c *call) listImports() {
	var since time.Time
	if text := c.r.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			c.invalid("since is not a time as in RFC 3339")
			return
		}
	}
	name := c.r.PathValue("list")
	l := c.acct.list(name)
	if l == nil && c.set.strictLists {
		c.unknownList(name)
		return
	}
	if !c.spend() {
		return
	}
	c.accept(0)
	type row struct {
		ImportID   string    `json:"import_id"`
		ReceivedAt time.Time `json:"received_at"`
		Rows       int       `json:"rows"`
		FirstKey   string    `json:"first_key"`
		LastKey    string    `json:"last_key"`
		Digest     string    `json:"digest,omitempty"`
	}
	rows := []row{}
	if l != nil {
		imports := c.page(l.importsSince(since, c.now.Add(-importsKept)))
		for _, rec := range imports {
			rows = append(rows, row{rec.id, rec.receivedAt, rec.rows, rec.firstKey, rec.lastKey, rec.digest})
		}
	}
	c.answerValue(http.StatusOK, rows)
}

// page cuts a list to the page that is asked for, and says in the header Link where the next one is.
func (c *call) page(imports []*importRecord) []*importRecord {
	query := c.r.URL.Query()
	if after := query.Get("after"); after != "" {
		at := slices.IndexFunc(imports, func(rec *importRecord) bool { return rec.id == after })
		imports = imports[at+1:]
	}
	size := c.set.pageSize
	if size == 0 || len(imports) <= size {
		return imports
	}
	query.Set("after", imports[size-1].id)
	c.w.Header().Set("Link", "<"+c.r.URL.EscapedPath()+"?"+query.Encode()+`>; rel="next"`)
	return imports[:size]
}

func (l *list) importsSince(times ...time.Time) []*importRecord {
	since := slices.MaxFunc(times, time.Time.Compare)
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.imports, since, func(rec *importRecord, t time.Time) int {
		if rec.receivedAt.Before(t) {
			return -1
		}
		return 1
	})
	return slices.Clone(l.imports[at:])
}

// checkCallback allows only this host: the simulator must not be made to call anybody else.
func checkCallback(callback string) error {
	if callback == "" {
		return nil
	}
	u, err := url.Parse(callback)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !isLoopback(u.Hostname()) {
		return errors.New("callback_url is not an http address of this host")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

var callbackClient = &http.Client{
	Timeout:       5 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// callBack tells a finished import to its callback_url, once, after its duration.
func (s *Sim) callBack(callback string, duration time.Duration, rec *importRecord) {
	go func() {
		if !s.wait(duration, nil) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), callbackClient.Timeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, callback,
			bytes.NewReader(rec.appendState(nil, false)))
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
			var res *http.Response
			if res, err = callbackClient.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}
		if err != nil {
			s.callbacksFailed.Add(1)
			return
		}
		s.callbacks.Add(1)
	}()
}
