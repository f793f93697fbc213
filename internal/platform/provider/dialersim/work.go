package dialersim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// workList is the list in which requests of the plain endpoints are counted, with kind http.
const workList = "work"

// echo answers what it received.
func (c *call) echo() { c.plainWork(0, 0) }

// work does a piece of work: it takes latency_ms and fails at fail_rate, with 503 and an HTML body, nothing done.
func (c *call) work() {
	query := c.r.URL.Query()
	rate, latency := 0.0, 0
	var err error
	if text := query.Get("fail_rate"); text != "" {
		if rate, err = strconv.ParseFloat(text, 64); err != nil || !(rate >= 0 && rate <= 1) {
			c.invalid("fail_rate is not a number from 0 to 1")
			return
		}
	}
	if text := query.Get("latency_ms"); text != "" {
		if latency, err = strconv.Atoi(text); err != nil || latency < 0 || latency > maxRangeMS {
			c.invalid("latency_ms is not a number from 0 to " + strconv.Itoa(maxRangeMS))
			return
		}
	}
	c.plainWork(rate, time.Duration(latency)*time.Millisecond)
}

// plainWork counts an arrival of the query's key, unless the work fails or its Idempotency-Key was seen before.
func (c *call) plainWork(failRate float64, latency time.Duration) {
	s := scratchFor(c.r.ContentLength)
	defer s.release()
	body, ok := c.body(s, maxSmallBody)
	if !ok {
		return
	}
	key, repeat := []byte(c.r.URL.Query().Get("key")), []byte(c.r.Header.Get("Idempotency-Key"))
	if len(key) > maxKey || len(repeat) > maxKey {
		c.invalid("the key is longer than " + strconv.Itoa(maxKey) + " bytes")
		return
	}
	l := c.acct.listForWrite(workList, false) // the only list that this account has
	if failRate > 0 && float64(c.sim.randomBelow(1<<53))/(1<<53) < failRate {
		c.sim.wait(latency, c.r.Context().Done())
		l.arrived[KindHTTP].mark(key)
		c.acct.totals[opHTTP].refused.Add(1)
		writeHTML(c.w, http.StatusServiceUnavailable)
		return
	}
	var n int
	replayed := len(repeat) > 0 && l.arrived[kindRepeat].add(repeat) > 1
	if replayed {
		n = l.arrived[KindHTTP].count(key)
	} else {
		n = l.arrived[KindHTTP].add(key)
	}
	c.accept(1)
	answer := encode(struct {
		OK       bool `json:"ok"`
		Received any  `json:"received"`
		N        int  `json:"n"`
		Replayed bool `json:"replayed,omitempty"`
	}{true, received(body), n, replayed})
	c.sim.wait(latency, c.r.Context().Done())
	c.send(http.StatusOK, answer)
}

// received is a body as JSON when it is JSON, else as text; null when there is none.
func received(body []byte) any {
	switch {
	case len(body) == 0:
		return nil
	case json.Valid(body):
		return json.RawMessage(body)
	}
	return string(body)
}
