package webhook

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
)

// What is started with its commit is bounded by the records that messages become, whatever made these large.
func TestStartsOf_Large(t *testing.T) {
	t.Parallel()
	of := func(contentEncoding string, body []byte, times int) (out []db.FlowWebhookDelivery) {
		stored, packed := pack(body)
		for range times {
			out = append(out, db.FlowWebhookDelivery{ID: uuid.New(), Body: stored, Packed: packed,
				SizeBytes: int32(len(body)), ContentEncoding: &contentEncoding})
		}
		return out
	}
	gzipped := func(size int) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write(bytes.Repeat([]byte("x"), size))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return out.Bytes()
	}
	repeating, err := json.Marshal(map[string]string{"x": "{{ payload.raw }}" + strings.Repeat("x", startedBytes)})
	require.NoError(t, err)
	plain, large := db.WebhookStartRow{}, db.WebhookStartRow{FlowWebhook: db.FlowWebhook{InputTemplate: repeating}}
	for name, c := range map[string]struct {
		hook  db.WebhookStartRow
		fresh []db.FlowWebhookDelivery
		want  error
	}{
		"a few":                {plain, of("", []byte("x"), startedMost), nil},
		"a few small packed":   {plain, of("gzip", gzipped(4<<10), startedMost), nil},
		"one packed":           {plain, of("gzip", gzipped(startedBytes-64), 1), nil},
		"one large packed":     {plain, of("gzip", gzipped(startedBytes+1), 1), errLeft},
		"large packed in all":  {plain, of("gzip", gzipped(startedBytes/2), 3), errLeft},
		"escapes":              {plain, of("", bytes.Repeat([]byte("\x01"), startedBytes/4), 1), errLeft},
		"a template of little": {large, of("", []byte("x"), 1), errLeft},
	} {
		group, err := startsOf(&c.hook, c.fresh, nil)
		assert.ErrorIs(t, err, c.want, name)
		if c.want == nil && assert.NoError(t, err, name) {
			assert.Len(t, group.Each, len(c.fresh), name)
		}
	}
}
