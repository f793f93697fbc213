package platformsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"flowlane/internal/media"
	"flowlane/internal/platform/catalog"
)

const mediaJSON = "application/json"

// reply is an answer, ready to be sent.
type reply struct {
	status  int
	headers headers
	media   string
	body    []byte
}

func (a reply) write(w http.ResponseWriter) {
	a.head(w)
	_, _ = w.Write(a.body)
}

func (a reply) head(w http.ResponseWriter) {
	for name, value := range a.headers {
		w.Header().Set(name, value)
	}
	if len(a.body) > 0 {
		w.Header().Set("Content-Type", a.media)
	}
	if a.status != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
}

// refuse answers that nothing was done, and why.
func (c *call) refuse(name string, why problem) {
	c.count(func(l *ledger) { l.totals.Refused[name]++ })
	c.vars["code"], c.vars["message"] = why.code, why.message
	c.finish(name)
}

// limited answers that a limit is reached.
func (c *call) limited(spent *spent) {
	c.count(func(l *ledger) { l.totals.Limited[c.name()]++ })
	c.vars["code"], c.vars["message"] = "rate_limited", "The limit "+spent.Name+" is reached."
	c.vars["limit"] = spent
	c.finish(answerLimited)
}

// finish answers, unless a fault spoils that.
func (c *call) finish(name string) {
	a := c.reply(name)
	if c.sim.document != nil && c.route != nil {
		if err := c.sim.document.answer(c.r, a, name == answerSuccess); err != nil {
			c.count(func(l *ledger) {
				l.totals.Undocumented = append(l.totals.Undocumented, c.name()+" "+name+": "+err.Error())
			})
		}
	}
	if name == answerSuccess {
		if c.route.Idempotency != "" {
			if key := c.r.Header.Get(c.route.Idempotency); key != "" {
				c.count(func(l *ledger) { l.keys[c.credential+" "+key] = before{c.print(), a} })
			}
		}
		if c.struckAfter(a) {
			return
		}
	}
	a.write(c.w)
}

// reply renders the answer of this name: of the request, of the profile, or by what the catalog says.
func (c *call) reply(name string) reply {
	a := c.sim.profile.Answers[name]
	if name == answerRejected && a == nil {
		a = c.sim.profile.Answers[answerInvalid]
	}
	if c.route != nil {
		if own := c.route.Answers[name]; own != nil {
			a = own
		} else if own := c.route.Answers[answerInvalid]; own != nil && name == answerRejected {
			a = own
		}
	}
	if a == nil {
		return c.guess(name)
	}
	out := reply{status: a.Status, media: a.Media, headers: headers{}}
	if out.status == 0 {
		out.status = http.StatusOK
	}
	if out.media == "" {
		out.media = mediaJSON
	}
	env := c.env()
	if a.headers != nil {
		raw, err := a.headers.Append(nil, env)
		if err != nil {
			c.mistake("headers of "+name, err)
		}
		gjson.ParseBytes(raw).ForEach(func(name, value gjson.Result) bool {
			out.headers[name.String()] = value.String()
			return true
		})
	}
	if a.body != nil {
		raw, err := a.body.Append(nil, env)
		if err != nil {
			c.mistake("body of "+name, err)
			return reply{status: http.StatusInternalServerError, media: mediaJSON, body: []byte(`{}`)}
		}
		out.body = raw
		v := gjson.ParseBytes(raw)
		if strings.HasSuffix(out.media, "xml") && v.IsObject() {
			if out.body, err = media.AppendDocument(nil, v); err != nil {
				c.mistake("body of "+name, err)
			}
		}
		if strings.HasSuffix(out.media, "csv") && v.IsArray() {
			out.body = table(v)
		}
		if v.Type == gjson.String && !strings.HasSuffix(out.media, "json") {
			out.body = []byte(v.String())
		}
	}
	return out
}

// table writes lines of cells.
func table(lines gjson.Result) (text []byte) {
	lines.ForEach(func(_, line gjson.Result) bool {
		var cells []string
		line.ForEach(func(_, cell gjson.Result) bool {
			cells = append(cells, cell.String())
			return true
		})
		text = media.AppendCells(text, cells)
		return true
	})
	return text
}

// guess makes an answer from the entry in the catalog alone: a status that it lists and the fields that it names.
func (c *call) guess(name string) reply {
	out := reply{status: http.StatusOK, media: mediaJSON, headers: headers{}, body: []byte(`{}`)}
	var spec catalog.Answer
	if c.route != nil && c.route.action != nil {
		spec = c.route.action.Call.Answer
	}
	set := func(field string, value any) {
		if field == "" {
			return
		}
		if body, err := sjson.SetBytes(out.body, field, value); err == nil {
			out.body = body
		}
	}
	if name == answerSuccess {
		if statuses := slices.Concat(spec.Success, spec.Pending); len(statuses) > 0 {
			out.status = statuses[0]
		}
		for _, field := range spec.Output {
			set(field, c.vars["id"])
		}
		set(spec.Reference, c.vars["id"])
		if c.route.action == nil {
			c.guessAccount(set)
		}
		if out.status == http.StatusNoContent {
			out.body = nil
		}
		return out
	}
	out.status = map[string]int{
		answerUnauthorized: http.StatusUnauthorized, answerMissing: http.StatusNotFound,
		answerLimited: http.StatusTooManyRequests,
	}[name]
	if out.status == 0 {
		out.status = http.StatusBadRequest
		if len(spec.Refused) > 0 && !slices.Contains(spec.Refused, out.status) {
			out.status = spec.Refused[0]
		}
	}
	set(spec.Code, c.vars["code"])
	set(spec.Message, c.vars["message"])
	if spent, ok := c.vars["limit"].(*spent); ok {
		out.headers["Retry-After"] = strconv.Itoa(spent.RetryAfter)
	}
	return out
}

func (c *call) guessAccount(set func(string, any)) {
	if account := c.sim.platform.Account; account != nil {
		set(account.Whoami.AccountNumber, c.vars["account"])
		set(account.Whoami.AccountName, "Simulated")
		set(account.Whoami.TimeZone, account.TimeZone)
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	text, _ := json.Marshal(value) // of types of ours
	reply{status: status, media: mediaJSON, body: text}.write(w)
}
