package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"flowlane/internal/recordset"
)

// rowBytes is the size of a sample row.
const rowBytes = 200

// sampleRows returns n different rows of rowBytes each: five fields of a contact, as a customer
// would upload them, without backslashes.
func sampleRows(n int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // sample data, the same every time
	firsts := []string{"Maria", "James", "Aiko", "Lars", "Fatima", "Chen", "Olga", "Diego"}
	rows := make([][]byte, n)
	for i := range rows {
		row := fmt.Appendf(nil,
			`{"id":"%d","phone":"+1%010d","first_name":"%s","balance":%d.%02d,"note":"called 2026-%02d-%02d, reference `,
			i, r.Int64N(1e10), firsts[r.IntN(len(firsts))], r.IntN(10000), r.IntN(100), 1+r.IntN(12), 1+r.IntN(28))
		row = fmt.Appendf(row, "%x", r.Uint64())
		row = append(row, bytes.Repeat([]byte("."), max(rowBytes-len(row)-2, 0))...)
		rows[i] = append(row, `"}`...)
	}
	return rows
}

// chunkBodies returns the bodies that upload rows in the largest chunks.
func chunkBodies(rows [][]byte) [][]byte {
	var out [][]byte
	for part := range slices.Chunk(rows, recordset.MaxChunkSize) {
		body := fmt.Appendf(nil, `{"chunk_index":%d,"records":[`, len(out))
		body = append(body, bytes.Join(part, []byte(","))...)
		out = append(out, append(body, "]}"...))
	}
	return out
}
