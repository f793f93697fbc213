// Package request owns what is remembered of requests: the answers under idempotency keys. It promises that an answer is
// kept if and only if what it tells of was committed. It must not know HTTP, nor what requests do.
package request
