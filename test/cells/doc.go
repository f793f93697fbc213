// Package cells tries several cells behind a proxy: real processes on databases of their own, and Debian's nginx with
// the configuration of deploy/cells.
package cells
