// Package batch has the words in which a batch is told: the statuses of batches, jobs and executions and how they may
// move, ranges of records and the calls that cover them, and what attempts left, as it is stored.
//
// It promises that no status moves but as drawn in status.go, that a stored fragment is read as it was written or not
// at all, and that a damaged one takes no more memory than it has. It changes nothing, and knows no service: package
// run moves batches, package query reads them.
package batch
