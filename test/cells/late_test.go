package cells_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// late is a request that was let in, and whose body still comes.
type late struct {
	t    *testing.T
	name string
	done chan struct{}
	said chan *http.Response
}

// hold begins a request, and returns once the service reads its body. That comes as slowly as bodies may until end.
func hold(t *testing.T, c *cell, key, path, body string) *late {
	t.Helper()
	r, w := io.Pipe()
	l := &late{t: t, name: path, done: make(chan struct{}), said: make(chan *http.Response, 1)}
	read := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(read) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1"+path, r)
	require.NoError(t, err)
	for name, value := range map[string]string{"Content-Type": "application/json", "X-API-Key": key,
		"Expect": "100-continue"} {
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Hour},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	go func() {
		res, err := client.Do(req)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			res = &http.Response{Body: http.NoBody}
		}
		l.said <- res
	}()
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		space := bytes.Repeat([]byte{' '}, 20<<10)
		for {
			select {
			case <-l.done:
				_, _ = io.WriteString(w, body)
				_ = w.Close()
				return
			case <-tick.C:
				_, _ = w.Write(space)
			}
		}
	}()
	select {
	case <-read:
	case res := <-l.said:
		t.Fatalf("%s was not let in: %d", path, res.StatusCode)
	}
	return l
}

// end sends the rest of the body, and returns the answer.
func (l *late) end() *http.Response {
	l.t.Helper()
	close(l.done)
	res := <-l.said
	text, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	l.t.Logf("%s: %d %s", l.name, res.StatusCode, text)
	return res
}

// TestMove_Late: requests that were let in before an organization goes to another cell, and would write when it has
// gone, are led on: nothing is answered as done that is not there.
func TestMove_Late(t *testing.T) {
	t.Parallel()
	old := newCell(t, 1)
	now := newCellBeside(old, 0)
	o := old.newOrg("Acme")
	c := apitest.NewClient(t, old.url, o.key)
	var flow, open, sealed struct{ ID string }
	c.Do(http.MethodPost, "/flows/definitions", transform).Want(http.StatusCreated).Into(&flow)
	c.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":10}`).Want(http.StatusCreated).Into(&open)
	c.Do(http.MethodPost, "/data/record-sets", `{"chunk_size":10}`).Want(http.StatusCreated).Into(&sealed)
	const chunk = `{"chunk_index":0,"records":[{"n":1}]}`
	c.Do(http.MethodPost, "/data/record-sets/"+sealed.ID+"/records", chunk).Want(http.StatusOK)
	c.Do(http.MethodPost, "/data/record-sets/"+sealed.ID+"/seal", `{"expected_count":1}`).Want(http.StatusOK)

	trigger := "/flows/definitions/" + flow.ID + "/trigger"
	var held []*late
	for _, r := range [][2]string{
		{"/data/record-sets/" + open.ID + "/records", chunk},
		{"/data/record-sets", `{"chunk_size":10}`},
		{trigger, `{"records":[{"n":1}]}`}, // in a transaction with others
		{trigger, fmt.Sprintf(`{"record_set_id":%q}`, sealed.ID)},
	} {
		held = append(held, hold(t, old, o.key, r[0], r[1]))
	}
	old.run(nil, "org", "move", o.id, "--to-database-url", now.dsn, "--to", "https://cell0."+commonHost)
	for _, l := range held {
		res := l.end()
		assert.Equal(t, http.StatusTemporaryRedirect, res.StatusCode, l.name)
		assert.Equal(t, "https://cell0."+commonHost+"/v1"+l.name, res.Header.Get("Location"))
	}
	assert.Equal(t, 2, now.count("flow.record_set"))
}
