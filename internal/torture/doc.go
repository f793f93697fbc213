// Package torture holds the tests that break things: they run real processes of the service against real Postgres and the
// simulated platform over real HTTP, and kill them, stop them, cut their connections and take their database away. What
// they hold is invariant 2 of docs/architecture.md: whatever happens at any instant, no record is lost and none arrives
// twice. Each test prints how many of each event it saw. It knows the service by its commands, its database and its API.
//
// FLOWLANE_KILLS says how often the kill test kills; `make torture` takes 200.
package torture
