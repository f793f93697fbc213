// Package simulation drives the pure rules of dispatch, pacing, run and definition through weeks of virtual time,
// thousands of seeds in minutes. It owns a world: provider accounts with clocks of their own, dispatchers that crash
// and stop, people who steer, other clients who spend; and the checks that hold after every step of it. It promises
// that a seed always goes the same way, and that no rule has a second version here: what decides is called, and only
// what is SQL by nature (conditional debits, queues, due rows) is a small store in memory, with transactions as large
// as the real ones. It must not know a database, a network or the wall clock.
package simulation
