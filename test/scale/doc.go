// Command scale reckons what a day of many organizations asks of cells, from what `make bench` and `make soak` have
// measured, and prints which part of a cell is full first. It knows nothing of the service's code: docs/scale.md says
// what it takes for given.
package main
