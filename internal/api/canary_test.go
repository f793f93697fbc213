package api_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// echo is a receiver that sends back all that it was sent: in its answers, errors and redirects, and its issuer of
// tokens in what it says of a client.
func echo(w http.ResponseWriter, r *http.Request) {
	request, _ := httputil.DumpRequest(r, true)
	for name, values := range r.Header {
		w.Header()["X-Echo-"+name] = values
	}
	w.Header().Set("Location", "/ok?"+r.URL.RawQuery+"&was="+r.Header.Get("Authorization"))
	w.Header().Set("Content-Type", "application/json")
	_, password, _ := r.BasicAuth()
	status := map[string]int{"/token": 200, "/refuse": 401, "/redirect": 302, "/error": 500, "/gone": 410}[r.URL.Path]
	w.WriteHeader(max(status, 200))
	token := "" // of other calls it is a secret only if they had it
	if r.URL.Path == "/token" {
		token = "kAnAryAccessToken0123"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": token, "token_type": "bearer", "error": "no " + string(request),
		"error_description": "the secret " + password + " is no secret", "message": string(request),
		"headers": r.Header,
		"query":   r.URL.Query(), "packed": request, "hex": hex.EncodeToString(request),
	})
}

// canaryCredentials are credentials of every method; fields that are secret have values that begin with kAnAry.
func canaryCredentials(address string) map[string]object {
	core := func(method, name string, fields object, more ...any) object {
		body := object{
			"name": name, "platform_id": "core", "auth_method": method, "credentials": fields,
			"allowed_origins": []string{address},
		}
		return with(body, more...)
	}
	return map[string]object{
		"basic": core("basic_auth", "basic", object{"username": "me", "password": "kAnAryBasicPassword+/?"}),
		"key in a header": core("api_key", "header", object{"api_key": "kAnAryHeaderKey0123456789"},
			"api_key_placement", object{"header_name": "X-Key", "scheme": "Key"}),
		"key in the query": core("api_key", "query", object{"api_key": "kAnAryQueryKey & more = 1"},
			"api_key_placement", object{"query_param": "key"}),
		"oauth2": core("oauth2", "oauth2", object{"client_id": "me", "client_secret": "kAnAryClientSecret0123"},
			"token_url", address+"/token"),
		"jwt": core("jwt", "jwt", object{"algorithm": "HS256", "key": strings.Repeat("kAnArySharedKey0", 4),
			"issuer": "me"}),
		"aws": {
			"name": "aws", "platform_id": "aws", "auth_method": "aws_access_key", "aws_region": "eu-central-1",
			"aws_default_bucket": "stock",
			"credentials": object{
				"access_key_id": "AKIA", "secret_access_key": "kAnAryAWSSecretAccess0",
				"session_token": "kAnAryAWSSessionToken0",
			},
			"aws_endpoint_url": address,
		},
	}
}

// safe collects what is written from several goroutines.
type safe struct {
	mu sync.Mutex
	bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.Write(p) //nolint:wrapcheck // a writer
}

// TestCanaries: wherever the service stores, shows, counts or logs something, no secret is.
func TestCanaries(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(receiver.Close)
	log := &safe{}
	s := serveStack(t, true, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, hostOf(receiver.URL))
		c.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Operator.Listen = "127.0.0.1:0"
	})
	canaries, places := []string{s.Key, "kAnAryAccessToken0123"}, map[string]string{}
	for name, body := range canaryCredentials(receiver.URL) {
		for _, v := range body["credentials"].(object) {
			if text, _ := v.(string); strings.HasPrefix(text, "kAnAry") {
				canaries = append(canaries, text)
			}
		}
		maps.Copy(places, s.useCanary(name, body, receiver.URL))
	}
	canaries = append(canaries, s.webhookSecret(places)...)
	for place, path := range map[string]string{
		"credentials": "/credentials", "audit log": "/account/audit-log?limit=200", "keys": "/account/api-keys",
		"webhooks": "/flows/webhooks", "calls": "/flows/calls?limit=200",
		"jobs": "/flows/jobs?limit=200", "batches": "/flows/batches",
	} {
		places[place] = string(s.Do(http.MethodGet, path, nil).Want(http.StatusOK).Body)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/goroutine?debug=2", "/debug/pprof/"} {
		res, err := http.Get(s.app.OperatorURL() + path)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		places[path] = string(text)
	}
	require.Contains(t, places["calls"], receiver.URL+"/refuse")
	maps.Copy(places, s.stored(t))
	places["log"] = log.String()
	require.NotEmpty(t, places["log"])
	apitest.WantNo(t, canaries, places)
}

// useCanary makes a credential, tests it, has a flow use it with all kinds of answers, and returns what was shown of
// it.
func (s *stack) useCanary(name string, body object, address string) map[string]string {
	s.t.Helper()
	places := map[string]string{}
	saw := func(place string, res []byte) { places[name+": "+place] += string(res) }
	saw("refused", s.Do(http.MethodPost, "/credentials",
		with(body, "status", 7, "platform_id", 7)).Want(http.StatusUnprocessableEntity).Body)
	saw("tested before", s.Do(http.MethodPost, "/credentials/test", body).Want(http.StatusOK).Body)
	created := s.Do(http.MethodPost, "/credentials", body).Want(http.StatusCreated)
	saw("created", created.Body)
	id := created.JSON()["id"].(string)
	saw("tested", s.Do(http.MethodPost, "/credentials/"+id+"/test", nil).Want(http.StatusOK).Body)
	saw("replaced", s.Do(http.MethodPut, "/credentials/"+id, with(body, "name", "renamed")).Want(http.StatusOK).Body)
	s.credential = id
	var steps []string
	for i, path := range []string{"ok", "refuse", "redirect", "error", "gone"} {
		task := object{"id": "t", "action_id": "core__http__request", "credential_id": id,
			"retry":  object{"max_attempts": 1},
			"params": object{"url": address + "/" + path}}
		if body["platform_id"] == "aws" {
			task["action_id"], task["params"] = "aws__s3__get_object", object{"key": path}
		}
		steps = append(steps, mustJSON(s.t, object{"id": fmt.Sprint("s", i), "tasks": []object{task}}))
	}
	for _, step := range steps {
		flow := s.define("[" + step + "]")
		saw("definition", s.Do(http.MethodGet, "/flows/definitions/"+flow, nil).Want(http.StatusOK).Body)
		saw("rehearsed", s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run",
			`{"input_data":{}}`).Want(http.StatusOK).Body)
		batch := s.trigger(flow, `{"records":[{"a":"b"}]}`)
		saw("batch", []byte(mustJSON(s.t, s.await(batch))))
		for _, path := range []string{"/results", "/results?format=csv", "/executions/0", "/failures", ""} {
			saw(path, s.Do(http.MethodGet, "/flows/batches/"+batch+path, nil).Body)
		}
		for _, job := range s.pages("/flows/jobs?batch_id="+batch, 10) {
			saw("job", s.Do(http.MethodGet, "/flows/jobs/"+field[string](s.t, job, "id"), nil).Body)
		}
	}
	return places
}

// webhookSecret makes a webhook and rotates its secret; the answers with the secrets are not kept.
func (s *stack) webhookSecret(places map[string]string) (secrets []string) {
	s.t.Helper()
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]`)
	made := s.Do(http.MethodPost, "/flows/webhooks", object{"definition_id": flow,
		"description": "w"}).Want(http.StatusCreated).JSON()
	path := "/flows/webhooks/" + made["id"].(string)
	rotated := s.Do(http.MethodPost, path+"/rotate-secret", nil).Want(http.StatusOK).JSON()
	places["webhook"] = string(s.Do(http.MethodGet, path, nil).Want(http.StatusOK).Body)
	for _, v := range []any{made["signing_secret"], rotated["signing_secret"]} {
		secrets = append(secrets, v.(string), strings.TrimPrefix(v.(string), "whsec_"))
	}
	return secrets
}
