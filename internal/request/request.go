// Package request owns what is remembered of requests: the answers under idempotency keys, and how many requests of an
// operation an organization has made lately. It promises that an answer is kept if and only if what it tells of was
// committed, and that a limit holds across all processes on one database. It must not know HTTP, nor what requests do.
package request
