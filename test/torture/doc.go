// Package torture holds the tests that break things: they run real processes of the service against real Postgres and
// the simulated platform over real HTTP, and kill them, stop them, cut their connections and take their database away.
// What they hold is invariant 2 of docs/architecture.md: whatever happens at any instant, no record is lost and none
// arrives twice. Each test prints how many of each event it saw. It knows the service by its commands, its database and
// its API.
//
// TestDay and TestMinute (files day_*) hold the other rules of the dispatcher on the same processes: no window above
// its cap, no call under a hold, no lane behind its share, no release above its policy, no move of a state that nobody
// has drawn. TestDay moves the clocks of database and platform together through a virtual day.
//
// TestClockSteps sets the clock of the database ahead and back while calls are under way.
//
// TestKill_Webhook does to messages of webhooks what TestKill does to calls: what was answered 202 has its one batch.
// It kills a third as often.
//
// TestSchedules (files schedules_*, timetable) lives hours or a day of schedules in the same way, with expressions
// whose slots are known without the service's parser: each has one fire, with one batch or the reason why there is
// none.
//
// TestSoak (files soak_*) breaks nothing but receivers: it sends signed messages at a steady rate, for 20 seconds or as
// long as FLOWLANE_SOAK says, and looks for what is lost, left behind or grows. `make soak` takes 30 minutes.
// TestKill_Soak kills the process under such a load, a fifth as often as TestKill.
//
// FLOWLANE_KILLS says how often the kill test kills, FLOWLANE_DAYS how many days TestDay lives, and FLOWLANE_SCHEDULES
// with how many schedules TestSchedules lives a whole day; `make torture` takes 200, 20 and 1000. FLOWLANE_DAY_SEED has
// TestDay live one day again.
package torture
