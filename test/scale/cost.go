package main

import "math"

// cost is what a record takes: seconds of a processor, bytes of log, bytes on disk for as long as it is kept.
type cost struct{ postgres, service, log, kept float64 }

func (c cost) times(n float64) cost {
	return cost{c.postgres * n, c.service * n, c.log * n, c.kept * n}
}

func (c cost) plus(o cost) cost {
	return cost{c.postgres + o.postgres, c.service + o.service, c.log + o.log, c.kept + o.kept}
}

// What was measured, on two processors. Bulk, call and grouped are rows of `make bench` (run, single, small), lone is
// `make soak` and the row of 10,000 organizations.
var (
	// bulk is a record among a thousand of one call. Kept are its share of a page and of the call's results.
	bulk = cost{postgres: 0.3e-6, service: 0.9e-6, log: 10, kept: 130}
	// call is a record of a large batch with a call of its own.
	call = cost{postgres: 0.10e-3, service: 0.16e-3, log: 1500, kept: 560}
	// grouped is a record that starts a flow together with others of its webhook.
	grouped = cost{postgres: 0.31e-3, service: 0.28e-3, log: 4600, kept: 1650}
	// lone is one that has nobody to share a transaction with for its webhook, its budget and its settlement.
	lone = cost{postgres: 2.5e-3, service: 1.5e-3, log: 7800, kept: 1650}
)

// together is within how many seconds starts of one organization share their transactions.
const together = 0.05

// start is what a start costs an organization that has so many a second.
func start(rate float64) cost {
	alone := math.Exp(-rate * together)
	return lone.times(alone).plus(grouped.times(1 - alone))
}
