package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/apitest"
)

// slow is a client that has sent the head of a request and a part of its body, and sends nothing more.
type slow struct {
	net.Conn

	answers *bufio.Reader
	t       *testing.T
}

// trickle sends a little again and again, until it cannot.
func (c slow) trickle(bytes int, pause time.Duration) {
	for {
		if _, err := io.WriteString(c, strings.Repeat(" ", bytes)); err != nil {
			return
		}
		<-time.After(pause)
	}
}

// post begins to send a body of a length, of which it sends a part.
func (s *stack) post(path string, length, part int, header ...string) slow {
	s.t.Helper()
	conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.app.URL(), "http://"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	head := fmt.Sprintf("POST /v1%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", path, length)
	for i := 0; i < len(header); i += 2 {
		head += header[i] + ": " + header[i+1] + "\r\n"
	}
	_, err = io.WriteString(conn, head+"\r\n"+strings.Repeat(" ", part))
	require.NoError(s.t, err)
	return slow{conn, bufio.NewReader(conn), s.t}
}

// answer is what it gets though it sends nothing more.
func (c slow) answer() (status int, body string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.answers, nil)
	require.NoError(c.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	return res.StatusCode, string(text)
}

// waits tells that it got no answer yet, and was not cut off.
func (c slow) waits() bool {
	c.t.Helper()
	// One that has passed would leave what came unread.
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := c.answers.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// TestSlow_Unsigned: who has no good headers is told so before anything of the body is there, and keeps nothing from
// the owner.
func TestSlow_Unsigned(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	at := func(offset time.Duration) string { return strconv.FormatInt(s.clock().Add(offset).Unix(), 10) }
	signature := "v1," + strings.Repeat("A", 43) + "="
	for name, header := range map[string][]string{
		"nothing":      nil,
		"no id":        {"webhook-timestamp", at(0), "webhook-signature", signature},
		"a bad id":     {"webhook-id", "a.b", "webhook-timestamp", at(0), "webhook-signature", signature},
		"no signature": {"webhook-id", "m", "webhook-timestamp", at(0)},
		"no signature of ours": {"webhook-id", "m", "webhook-timestamp", at(0), "webhook-signature",
			"v1a," + signature[3:]},
		"half a signature":       {"webhook-id", "m", "webhook-timestamp", at(0), "webhook-signature", signature[:20]},
		"no timestamp":           {"webhook-id", "m", "webhook-signature", signature},
		"a timestamp that is no": {"webhook-id", "m", "webhook-timestamp", "now", "webhook-signature", signature},
		"old": {"webhook-id", "m", "webhook-timestamp", at(-6 * time.Minute), "webhook-signature",
			signature},
		"early": {"webhook-id", "m", "webhook-timestamp", at(6 * time.Minute), "webhook-signature",
			signature},
	} {
		for _, length := range []int{10, 20_000, 200_000, webhook.MaxBody} {
			status, body := s.post(h.url, length, 1, header...).answer()
			assert.Equal(t, http.StatusUnauthorized, status, "%s, %d bytes", name, length)
			assert.JSONEq(t, `{"detail":"Signature verification failed"}`, apitest.Detail(body), name)
		}
	}
	for range 40 {
		s.post(h.url, 200_000, 100_000)
	}
	s.send(h, "large", strings.Repeat("x", 200_000)).Want(http.StatusAccepted)
}

// TestSlow_Signed: who knows addresses of an organization, and sends what looks signed, keeps nothing from others.
func TestSlow_Signed(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	hooks := []hook{s.webhook(s.webhookBody()), s.webhook(s.webhookBody())}
	others := *s
	others.Client = s.other
	h := others.webhook(others.webhookBody())
	var open []slow
	for i := range 40 {
		open = append(open, s.post(hooks[i%2].url, webhook.MaxBody, 40_000,
			s.signed(hooks[0].secret, strconv.Itoa(i), nil)...))
	}
	others.send(h, "large", strings.Repeat("x", webhook.MaxBody)).Want(http.StatusAccepted)
	s.send(hooks[0], "small", "{}").Want(http.StatusAccepted)
	// They hold what has come of them, not what they have announced.
	s.send(hooks[0], "large", strings.Repeat("x", webhook.MaxBody)).Want(http.StatusAccepted)
	for _, one := range open {
		require.True(t, one.waits(), "it was accepted while all of them were open")
	}
}

// TestSlow_Uploads: a chunk that no set can take is refused before its body is there; one that stalls keeps no other
// organization's out.
func TestSlow_Uploads(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	header := []string{"X-API-Key", s.Key, "Content-Type", "application/json"}
	status, body := s.post("/data/record-sets/"+uuid.NewString()+"/records", 16<<20, 1, header...).answer()
	assert.Equal(t, http.StatusNotFound, status)
	assert.JSONEq(t, `{"detail":"Record set not found"}`, apitest.Detail(body))
	status, body = s.post("/data/record-sets/"+s.upload(rowsOf(1))+"/records", 16<<20, 1, header...).answer()
	assert.Equal(t, http.StatusConflict, status)
	assert.JSONEq(t, `{"detail":"Record set is not open"}`, apitest.Detail(body))
	status, _ = s.post("/data/record-sets/"+uuid.NewString()+"/records", 16<<20, 1).answer()
	assert.Equal(t, http.StatusUnauthorized, status)

	set := s.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	var open []slow
	for range 16 {
		open = append(open, s.post("/data/record-sets/"+set+"/records", 16<<20, 1, header...))
	}
	others := *s
	others.Client = s.other
	others.upload(rowsOf(3))
	for _, one := range open {
		require.True(t, one.waits(), "it was accepted while all of them were open")
	}
}

// TestSlow_Turns: slow uploads of several organizations that have all places, and are fast enough to go on, keep
// nobody else out.
func TestSlow_Turns(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	var open []slow
	for _, c := range []*apitest.Client{s.Client, s.other} {
		set := c.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
		for range 5 {
			one := s.post("/data/record-sets/"+set+"/records", 16<<20, 1, "X-API-Key", c.Key, "Content-Type",
				"application/json")
			open = append(open, one)
			go one.trickle(4<<10, 20*time.Millisecond)
		}
	}
	third := *s
	third.Client = s.As(s.tenant("Third"))
	var refused []string
	for len(refused) == 0 { // at first there may be places left
		third.upload(rowsOf(3))
		for _, one := range open {
			if !one.waits() {
				status, body := one.answer()
				refused = append(refused, fmt.Sprint(status, " ", apitest.Detail(body)))
			}
		}
	}
	assert.Equal(t, []string{
		`429 {"detail":"Others wait, and the chunk has not come within 10 seconds: send it again, or smaller ones"}`,
	}, refused)
}

// TestSlow_Tells: a client that does not send what it announced is told what was expected of it, whatever it sends.
func TestSlow_Tells(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	set := s.Do(http.MethodPost, "/data/record-sets", nil).Want(http.StatusCreated).JSON()["id"].(string)
	key := []string{"X-API-Key", s.Key, "Content-Type", "application/json"}
	stalled := []slow{
		s.post(h.url, 100, 1, s.signed(h.secret, "m", nil)...),
		s.post(h.url, 200_000, 50_000, s.signed(h.secret, "m", nil)...),
		s.post("/data/record-sets/"+set+"/records", 200_000, 1, key...),
		s.post("/data/record-sets", 200, 1, key...),
	}
	for _, one := range stalled {
		status, body := one.answer()
		assert.Equal(t, http.StatusRequestTimeout, status)
		assert.JSONEq(t, `{"detail":"Request body came too slowly: after 10 seconds it must come at 32 KiB a second"}`,
			apitest.Detail(body))
		_, err := one.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF, "the connection is closed")
	}
}

// TestSlow_TooLarge: a client that announces too much is told before it has sent it.
func TestSlow_TooLarge(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	key := []string{"X-API-Key", s.Key, "Content-Type", "application/json"}
	before := s.post("/data/record-sets", 200, 1, key...)
	status, body := s.post("/flows/definitions", 1<<30, 1, key...).answer()
	require.True(t, before.waits(), "whoever came before and stalls has not been told so yet")
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
	assert.JSONEq(t, `{"detail":"Request body exceeds 1048576 bytes"}`, apitest.Detail(body))
}

// TestSlow_Hurried: a client that looks for no answer before it has sent everything gets that of a refusal which
// needed no body.
func TestSlow_Hurried(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.app.URL(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	const length = 24 << 20 // more than lies in the buffers of a connection
	head := "POST /v1/data/record-sets/" + uuid.NewString() +
		"/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" +
		"Content-Type: application/json\r\nX-API-Key: " + s.Key + "\r\n\r\n"
	_, err = fmt.Fprintf(conn, "%s%x\r\n%s\r\n0\r\n\r\n", head, length, strings.Repeat(" ", length))
	require.NoError(t, err)
	status, _ := slow{conn, bufio.NewReader(conn), t}.answer()
	assert.Equal(t, http.StatusNotFound, status)
	s.sendUnsigned(h.url, strings.Repeat("x", webhook.MaxBody)).Detail(http.StatusUnauthorized,
		"Signature verification failed")
}
