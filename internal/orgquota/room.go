package orgquota

import "time"

const (
	// countLasts is how long a count is good for as much as half of the room that it found: others use it, too.
	countLasts = 10 * time.Second
	// fullLasts is for how long it is believed that there is no more room than a count found.
	fullLasts = time.Second
	// uncounted is the share of a quota that may be used without any count: nobody counts for those who have little.
	uncounted = 1000
)

// room is what a process knows of the room that an organization has within a quota: what a count found, and what it has
// taken of that since. The zero value with a limit is that of a process that has never counted.
//
//	                      a count lasts                      another count is due
//	count ──▶ half of the room, for 10 s ──▶ a thousandth of the quota ──▶ count
//	  └─ more than there was: refused for 1 s, without a count
//
// So an organization has more than its quota by no more than what each other process took of half of the room that it
// found in the last ten seconds, or a thousandth of the quota, whichever is more.
type room struct {
	limit int64
	// found is what the last count found free, at a time; that is zero before the first. It is less than nothing after
	// the quota was lowered.
	found int64
	at    time.Time
	// taken is what was taken since.
	taken int64
}

// take takes as much of want as is known to be free; known is false where a count must say how much that is.
func (r *room) take(want int64, now time.Time) (granted int64, known bool) {
	counted, age := !r.at.IsZero(), now.Sub(r.at)
	free := r.limit / uncounted
	if counted {
		free = min(free, r.found)
	}
	if counted && age < countLasts {
		free = max(free, r.found/2)
	}
	switch {
	case r.taken+want <= free:
		return r.grant(want), true
	case counted && age < fullLasts && want > r.found:
		return r.grant(min(want, r.found-r.taken)), true
	}
	return 0, false
}

// counted notes a count that was just made, and takes as much of want as it found.
func (r *room) counted(limit, used, want int64, now time.Time) (granted int64) {
	*r = room{limit: limit, found: limit - used, at: now}
	return r.grant(min(want, r.found))
}

func (r *room) grant(n int64) int64 {
	n = max(0, n)
	r.taken += n
	return n
}

// used is how much is used, as far as a process knows that has counted.
func (r *room) used() int64 { return r.limit - r.found + r.taken }
