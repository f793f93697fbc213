package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// TestCredentials_PlatformMoved: a secret that was tried at one address is not stored for another, which an import
// named meanwhile.
func TestCredentials_PlatformMoved(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = fmt.Fprint(w, `{"id":"1"}`)
	}))
	t.Cleanup(first.Close)
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"id":"1"}`)
	}))
	t.Cleanup(second.Close)
	s := serveStack(t, false, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, hostOf(first.URL), hostOf(second.URL))
	})
	load := func(at string) {
		t.Helper()
		document := strings.ReplaceAll(`{"openapi":"3.1.0","info":{"title":"Moving"},"servers":[{"url":"AT"}],
			"security":[{"key":[]}],"components":{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"X-Key"}}},
			"paths":{"/me":{"get":{"operationId":"me","tags":["All"],"responses":{"200":{"description":"ok"}}}}}}`, "AT", at)
		s.Do(http.MethodPost, "/catalog/imports", object{"document": document,
			"account": object{"path": "/me", "account_number": "id"}}).Want(http.StatusCreated)
	}
	load(first.URL)
	body := object{"name": "k", "platform_id": "moving", "auth_method": "api_key",
		"credentials": object{"api_key": needle}}
	before := s.count("flow.credential")
	var group sync.WaitGroup
	var slow apitest.Response
	group.Go(func() { slow = s.Client.Do(http.MethodPost, "/credentials", body) })
	<-asked
	load(second.URL)
	close(answer)
	group.Wait()
	slow.Detail(http.StatusConflict, "Platform moving was imported anew while the secret was tried there; "+
		"nothing was stored: try again")
	assert.Equal(t, before, s.count("flow.credential"))
	s.Do(http.MethodPost, "/credentials", body).Want(http.StatusCreated)
}
