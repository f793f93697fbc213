package ha_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// client sets up what a customer has, by the API of the first process.
type client struct {
	*testing.T

	url, key string
}

// newClient is that of an organization of its own.
func newClient(t *testing.T, s *service) *client {
	t.Helper()
	var org struct{ ID string }
	decode(t, s.run("org", "create", "--name", "Acme", "--json"), &org)
	var key struct{ Key string }
	decode(t, s.run("apikey", "create", "--org", org.ID, "--name", "test", "--json"), &key)
	return &client{T: t, url: s.processes[0].url, key: key.Key}
}

func decode(t *testing.T, text string, out any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// make makes something and returns its id, and the answer.
func (c *client) make(path, body string) (string, map[string]any) {
	c.Helper()
	req := must(http.NewRequestWithContext(c.Context(), http.MethodPost, c.url+"/v1"+path, strings.NewReader(body)))
	req.Header.Set("X-API-Key", c.key)
	req.Header.Set("Content-Type", "application/json")
	res := must(http.DefaultClient.Do(req))
	defer res.Body.Close()
	text := must(io.ReadAll(res.Body))
	if res.StatusCode >= http.StatusMultipleChoices {
		c.Fatalf("%s was answered %s: %s", path, res.Status, text)
	}
	var out map[string]any
	decode(c.T, string(text), &out)
	id, _ := out["id"].(string)
	return id, out
}

// credential is one of an account of the platform.
func (c *client) credential(account string) string {
	c.Helper()
	id, _ := c.make("/credentials", fmt.Sprintf(`{"name":%q,"platform_id":"dialer","auth_method":"basic_auth",
		"credentials":{"username":%q,"password":"x"}}`, account, account))
	return id
}

// flow makes a definition that uploads each record to a list.
func (c *client) flow(action, credential, list, key string) string {
	c.Helper()
	id, _ := c.make("/flows/definitions", fmt.Sprintf(`{"name":%q,"status":"active","steps":[{"id":"s","tasks":[{"id":"t",
		"action_id":"dialer__api__%s","credential_id":%q,"retry":{"max_attempts":20,"initial_seconds":0.5,"max_seconds":2},
		"params":{"list":%q,"key_field":"id","row":{"id":%q}}}]}]}`, list, action, credential, list, key))
	return id
}

// largeBatch uploads records and starts a flow with them; it returns the id of the batch.
func (c *client) largeBatch(flow string, records int) string {
	c.Helper()
	set, _ := c.make("/data/record-sets", `{}`)
	var rows bytes.Buffer
	for i := range records {
		fmt.Fprintf(&rows, `,{"id":"large-%x","list":"large%d"}`, i, i/100%50)
	}
	c.make("/data/record-sets/"+set+"/records", `{"chunk_index":0,"records":[`+rows.String()[1:]+`]}`)
	c.make("/data/record-sets/"+set+"/seal", fmt.Sprintf(`{"expected_count":%d}`, records))
	_, started := c.make("/flows/definitions/"+flow+"/trigger", fmt.Sprintf(`{"record_set_id":%q}`, set))
	id, _ := started["batch_id"].(string)
	return id
}
