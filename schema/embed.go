// Package schema holds the migrations of the schema flow, numbered and applied in order by package pg: the baseline,
// one file for each subject. From the first release on, migrations add to it, and none is ever changed.
package schema

import "embed"

// Baseline is the number of the last file of the baseline, which is applied to empty databases alone.
const Baseline = 18

// FS has every migration at its root.
//
//go:embed *.sql
var FS embed.FS
