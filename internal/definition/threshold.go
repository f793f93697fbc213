package definition

import (
	"math/big"
	"strconv"
)

// Bounds of a failure threshold.
const (
	maxFailures = 1_000_000_000
	maxPercent  = 100
)

// Threshold says how many jobs of a batch may fail. Past it the batch stops.
type Threshold struct {
	// Count is a number of jobs, Percent a share of the batch's records; one of them is set.
	Count   *int64   `json:"count,omitempty"`
	Percent *float64 `json:"percent,omitempty"`
}

// Allowed returns how many jobs of a batch of so many records may fail; one more stops it. Without a threshold all may.
func (t *Threshold) Allowed(records int64) int64 {
	switch {
	case t == nil:
		return records
	case t.Count != nil:
		return min(*t.Count, records)
	}
	// In decimals, as it was written: as a binary fraction 0.29 % of 10,000 would be less than 29.
	share, _ := new(big.Rat).SetString(strconv.FormatFloat(*t.Percent, 'f', -1, 64))
	share.Mul(share, big.NewRat(records, maxPercent))
	return new(big.Int).Quo(share.Num(), share.Denom()).Int64()
}

func (c *checker) threshold(at place, t *Threshold) {
	switch {
	case t == nil:
		return
	case t.Count == nil && t.Percent == nil:
		c.add(at, "value_error", nil, "Needs count or percent; leave failure_threshold out for none")
	case t.Count != nil && t.Percent != nil:
		c.add(at, "value_error", nil, "Takes count or percent, not both")
	}
	bounded(c, at.below("count"), t.Count, 0, maxFailures)
	bounded(c, at.below("percent"), t.Percent, 0, maxPercent)
}
