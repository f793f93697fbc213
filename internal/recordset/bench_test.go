package recordset

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sampleBody is a chunk of n rows of about 200 bytes.
func sampleBody(index, n int) []byte {
	r := rand.New(rand.NewSource(int64(index))) //nolint:gosec // sample data
	var b strings.Builder
	fmt.Fprintf(&b, `{"chunk_index":%d,"records":[`, index)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"%d","phone":"+1%010d","first_name":"First%d","last_name":"Last%d","city":"City %d","balance":%d.%02d,"note":"call after %d","segment":"%016x","campaign":"spring"}`,
			index*n+i, r.Intn(1e9), r.Intn(1000), r.Intn(1000), r.Intn(300), r.Intn(10000), r.Intn(100), r.Intn(24),
			r.Int63())
	}
	b.WriteString("]}")
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	body := sampleBody(0, MaxChunkSize)
	spans := make([]span, 0, MaxChunkSize)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		_, err := parse(body, MaxChunkSize, spans)
		require.NoError(b, err)
	}
}

func BenchmarkAppend(b *testing.B) {
	s := setup(b)
	const chunks = 8
	var set Manifest
	var err error
	var bodies [chunks][]byte
	for i := range bodies {
		bodies[i] = sampleBody(i, MaxChunkSize)
	}
	b.SetBytes(int64(len(bodies[0])))
	for i := 0; b.Loop(); i++ {
		if i%chunks == 0 {
			b.StopTimer()
			set, err = s.Create(b.Context(), s.org, 0, nil)
			require.NoError(b, err)
			b.StartTimer()
		}
		_, err := s.Append(b.Context(), s.org, set.ID, bodies[i%chunks])
		require.NoError(b, err)
	}
}
