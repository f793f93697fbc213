package dialersim

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// maxRows are the most rows of one call.
const (
	maxRowsUpload = 50_000
	maxRowsAsync  = 100
)

func (c *call) upload() {
	c.receive(maxRowsUpload, func(l *list, p *payload, rec *importRecord) {
		if !c.reserve(l, 0) {
			return
		}
		latency := c.latency()
		c.record(l, p, rec)
		// The import takes its time even when the client has left: until then the list takes no other.
		c.sim.wait(latency, nil)
		l.release()
		c.send(http.StatusOK, rec.appendCounts([]byte("{")))
	})
}

func (c *call) uploadAsync() {
	c.receive(maxRowsAsync, func(l *list, p *payload, rec *importRecord) {
		if err := checkCallback(p.callback); err != nil {
			c.invalid(err.Error())
			return
		}
		duration := c.set.importDuration.pick(c.sim.randomBelow)
		if !c.reserve(l, duration) {
			return
		}
		rec.doneAt = c.now.Add(duration)
		c.record(l, p, rec)
		l.release()
		if p.callback != "" {
			c.sim.callBack(p.callback, duration, rec)
		}
		c.answer(http.StatusAccepted, fmt.Appendf(nil, `{"import_id":"%s"}`, rec.id))
	})
}

// receive reads and checks an upload and computes what its import will record, so that accepting it is one short
// moment.
func (c *call) receive(maxRows int, accept func(*list, *payload, *importRecord)) {
	name, l := c.writableList()
	if l == nil {
		return
	}
	s := scratchFor(c.r.ContentLength)
	defer s.release()
	body, ok := c.body(s, maxBody)
	if !ok {
		return
	}
	p, err := parsePayload(body, maxRows, c.set.fields, s.values)
	var unreadable badBody
	switch {
	case errors.Is(err, errTooManyRows):
		c.refuse(http.StatusRequestEntityTooLarge, refusal{
			Fault: "import_size_limit_exceeded", Message: fmt.Sprintf("A call takes at most %d rows.", maxRows),
		})
		return
	case errors.As(err, &unreadable):
		c.invalid(unreadable.reason)
		return
	}
	s.values = p.values
	rec := &importRecord{
		id: c.sim.newID("imp"), list: name, rows: p.count, rejected: judge(p, c.set.rules),
		firstKey: string(p.key(0)), lastKey: string(p.key(p.count - 1)),
	}
	rec.digest = digestOf(c.set.digest, p.rows.of(body))
	rec.arrivals = arrivalsOf(p, rec.rejected)
	accept(l, p, rec)
}

// writableList returns the list of the path, or answers 404 and returns nil.
func (c *call) writableList() (string, *list) {
	name := c.r.PathValue("list")
	if err := checkName("list", name); err != nil {
		c.invalid(err.Error())
		return name, nil
	}
	l := c.acct.listForWrite(name, c.set.strictLists)
	if l == nil {
		c.unknownList(name)
	}
	return name, l
}

func (c *call) unknownList(name string) {
	c.refuse(http.StatusNotFound, refusal{Fault: "unknown_list", Message: "There is no list " + name + "."})
}

// reserve claims the list and spends the call in one step, or answers and returns false. An asynchronous import holds
// the list for its duration, a synchronous one until release.
func (c *call) reserve(l *list, duration time.Duration) bool {
	l.mu.Lock()
	if c.set.exclusive && (l.importing || c.sim.now(c.set).Before(l.busyUntil)) {
		l.mu.Unlock()
		c.refuse(http.StatusConflict, refusal{
			Fault: "concurrent_modification", Message: "Another import is running in this list.",
		})
		return false
	}
	l.importing = true
	l.mu.Unlock()
	if !c.spend() {
		l.release()
		return false
	}
	l.mu.Lock()
	l.busyUntil = c.now.Add(duration)
	l.mu.Unlock()
	return true
}

func (l *list) release() {
	l.mu.Lock()
	l.importing = false
	l.mu.Unlock()
}

// record notes an accepted import and every arrival in it.
func (c *call) record(l *list, p *payload, rec *importRecord) {
	rec.receivedAt = c.now.UTC().Truncate(time.Microsecond)
	l.arrived[KindUpload].log(rec.arrivals)
	rec.arrivals = arrivalLog{}
	c.acct.keepImport(l, rec)
	c.accept(p.count)
}

// arrivalsOf lists the keys of a payload, the rejected ones marked.
func arrivalsOf(p *payload, rejected []rejection) arrivalLog {
	size := 0
	for row := range p.count {
		size += len(p.value(row, 0))
	}
	log := arrivalLog{text: make([]byte, 0, size), sizes: make([]uint16, 0, p.count)}
	for row := range p.count {
		out := len(rejected) > 0 && int(rejected[0].row) == row
		if out {
			rejected = rejected[1:]
		}
		log.add(p.key(row), out)
	}
	return log
}
