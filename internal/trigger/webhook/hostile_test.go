package webhook_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"
	"unicode/utf8"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/webhooktest"
)

// mostMemory is what reading one body may take beside the body.
const mostMemory = 64 << 20

// TestPayload_Hostile takes every body, storable, and within the memory that all reading may allocate, even if nothing
// of it were ever freed.
func TestPayload_Hostile(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	for _, c := range webhooktest.Hostile() {
		body := []byte(c.Text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := webhook.Payload(c.ContentType, "", body)
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d KiB for %d KiB, %d KiB long", c.Name, took>>10, len(body)>>10, len(got)>>10)
		if took > mostMemory {
			t.Errorf("%s: %d bytes were allocated", c.Name, took)
		}
		wantStorable(t, c.Name, got)
		if understood := !isWrapped(got); understood != c.Understood {
			t.Errorf("%s: understood: %t", c.Name, understood)
		}
	}
}

// isWrapped tells whether a payload is {raw, content_type}.
func isWrapped(payload []byte) bool {
	return bytes.HasPrefix(payload, []byte(`{"raw":"`)) && bytes.Contains(payload[max(0, len(payload)-400):],
		[]byte(`","content_type":"`))
}

func wantStorable(t *testing.T, name string, payload []byte) {
	t.Helper()
	if !json.Valid(payload) || !utf8.Valid(payload) || bytes.Contains(payload, []byte{0}) {
		t.Errorf("%s: %.200q is not JSON that can be stored", name, payload)
	}
}
