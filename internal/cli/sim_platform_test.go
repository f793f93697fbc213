package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// customers is the part of a vendor's document that says what a customer needs.
const customers = `{"openapi": "3.0.0", "info": {"title": "customers", "version": "1"}, "paths": {"/v1/customers": {"post": {
	"requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object", "required": ["email"],
		"properties": {"email": {"type": "string"}, "name": {"type": "string"}}}}}},
	"responses": {"200": {"description": "ok", "content": {"application/json": {"schema": {"type": "object"}}}}}}}}}`

// TestSim_Platform: a platform of the catalog can be played by itself, where it says, and what comes is held against
// the vendor's document, be that named or found in a folder under its usual name.
func TestSim_Platform(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "stripe-spec3-2023-09-12.yaml")
	require.NoError(t, os.WriteFile(file, []byte(customers), 0o600))
	for _, document := range []string{file, dir} {
		var sim struct {
			URL     string `json:"url"`
			BaseURL string `json:"base_url"`
		}
		process := launch(t, nil, &sim, "sim", "platform", "--platform", "stripe", "--listen", "127.0.0.1:0",
			"--document", document)
		require.Equal(t, sim.URL, sim.BaseURL)
		create := func(form string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sim.BaseURL+"/v1/customers",
				strings.NewReader(form))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Authorization", "Bearer sk_test")
			req.Header.Set("Idempotency-Key", form)
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			return res.StatusCode, string(text)
		}
		status, text := create("email=ada%40example.com")
		assert.Equal(t, http.StatusOK, status, text)
		var made struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(text), &made))
		assert.NotEmpty(t, made.ID)
		status, text = create("name=Ada")
		assert.Equal(t, http.StatusBadRequest, status, text)
		assert.Contains(t, text, "email")
		process.stop(t, syscall.SIGTERM)
	}
	for refused, why := range map[string]string{
		"--platform nothing": `there is no platform "nothing" in the catalog`,
		"--platform zendesk --document " +
			dir: "no document of platform zendesk is known; name the file",
		"--platform stripe --document " + filepath.Join(dir, "none.yaml"): "the vendor's document: ",
	} {
		out, err := program(t, nil, append([]string{"sim", "platform"}, strings.Fields(refused)...)...).CombinedOutput()
		require.Error(t, err, refused)
		assert.Contains(t, string(out), why)
	}
}
