// Package webhook owns what other people's systems send to start flows: the webhooks and their secrets, who may send
// (signatures after Standard Webhooks), what was delivered, and what the bodies mean to a flow.
//
// It promises that Verify looks at the raw bytes alone, tells nobody why it refuses, and gives no hint by its time; and
// that Payload takes every body, however hostile, within fixed bounds of memory. A payload is JSON text, as records
// are, so that the digits and the order of what was sent as JSON survive.
//
// It must not know HTTP: package api reads requests and alone knows statuses.
package webhook
