package webhook

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
)

func TestPack(t *testing.T) {
	t.Parallel()
	random := make([]byte, MaxBody)
	_, _ = rand.Read(random)
	for name, c := range map[string]struct {
		body   []byte
		packed bool
	}{
		"empty":      {[]byte{}, false},
		"small":      {bytes.Repeat([]byte("x"), packFrom-1), false},
		"repetitive": {bytes.Repeat([]byte("x"), packFrom), true},
		"largest":    {bytes.Repeat([]byte("0123456789abcdef"), MaxBody/16), true},
		"random":     {random, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, packed := pack(c.body)
			assert.Equal(t, c.packed, packed)
			assert.Equal(t, packed, len(stored) < len(c.body))
			d := db.FlowWebhookDelivery{Body: stored, Packed: packed, SizeBytes: int32(len(c.body))}
			body, err := bodyOf(&d)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(c.body, body))
		})
	}
	stored, _ := pack(bytes.Repeat([]byte("x"), packFrom))
	for name, d := range map[string]db.FlowWebhookDelivery{
		"another size": {Body: stored, Packed: true, SizeBytes: packFrom + 1},
		"cut":          {Body: stored[:len(stored)-1], Packed: true, SizeBytes: packFrom},
		"none":         {Packed: true, SizeBytes: packFrom},
	} {
		_, err := bodyOf(&d)
		assert.Error(t, err, name)
	}
}
