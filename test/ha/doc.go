// Package ha holds the test of docs/availability.md: three processes of the service on three nodes of Postgres that
// Patroni keeps in synchronous mode, under a mixed load, while their parts are killed, stopped and cut off. It tells
// how long callers and calls waited after each fault, and holds that nothing was lost, came twice or was left behind.
//
// It runs where FLOWLANE_HA is set, as root, with Debian's patroni, etcd-server and postgresql-15: `make ha`. All of it
// runs in namespaces of its own (network, mounts, processes), so that nothing listens on the machine's network, and
// nothing outlives the test. Each node of Postgres has an address and a cable of its own, which can be cut.
package ha
