package definition_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/definition"
)

func TestThreshold_Allowed(t *testing.T) {
	t.Parallel()
	count := func(n int64) *definition.Threshold { return &definition.Threshold{Count: &n} }
	percent := func(p float64) *definition.Threshold { return &definition.Threshold{Percent: &p} }
	for _, tt := range []struct {
		threshold     *definition.Threshold
		records, want int64
	}{
		{nil, 10, 10},
		{count(0), 10, 0}, {count(3), 10, 3}, {count(30), 10, 10},
		{percent(0), 10, 0}, {percent(25), 10, 2}, {percent(25), 3, 0}, {percent(50), 2, 1}, {percent(100), 7, 7},
		{percent(0.29), 10_000, 29}, {percent(2.3), 1_000, 23}, {percent(1e-7), 1_000_000_000, 1},
		{percent(33.3333), 3, 0},
	} {
		assert.Equal(t, tt.want, tt.threshold.Allowed(tt.records), "%+v of %d", tt.threshold, tt.records)
	}
}
