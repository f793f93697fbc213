package quota

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// LaneTag is where a lane stands in weighted fair queueing: the virtual times at which its last charge began and ended.
// The lane with the least Finish goes next.
type LaneTag struct{ Start, Finish int64 }

// charged is the tag after a charge for n calls, where clock is the latest start of its competitors.
func (t LaneTag) charged(clock int64, n, weight int) LaneTag {
	start := Begins(t.Finish, clock)
	return LaneTag{Start: start, Finish: start + int64(n)*fairUnit/int64(weight)}
}

// Begins is where the next charge of what was charged up to finish begins. What had nothing to send begins where the
// others are: it does not come back with the credit of the time in which it wanted nothing, and once it has gone, those
// go that it is level with.
func Begins(finish, clock int64) int64 {
	if finish < clock {
		return clock + 1
	}
	return finish
}

const fairUnit = 1 << 20

// LaneKey names a lane of an organization.
type LaneKey struct {
	Org  uuid.UUID
	Lane db.FlowLane
}

// LaneShare is where a lane of an organization stands in the queue for a budget. Organizations that share the budget
// have equal shares of it, whatever the weights of their lanes, which divide an organization's own share.
type LaneShare struct {
	LaneKey
	// OrgTag is the organization's place among the organizations, Tag the lane's among the organization's lanes.
	OrgTag, Tag LaneTag
	// Weight is the lane's share among the lanes of its organization, from 1.
	Weight int
}

// Demand is a lane that has calls ready.
type Demand struct {
	LaneShare
	// Ready is how many calls it may send now: none for a lane that only tells where the others are.
	Ready int
}

// Allot says which lane gets each place of a group of calls, in the order in which the calls go: indexes of lanes,
// fewer than places where fewer calls are ready. The organization with the least virtual time goes next, of it the lane
// with the least, of equal ones the heavier. Idle lanes of the budget are given too, with none ready, or each Finish is
// what it begins at.
func Allot(lanes []Demand, places int) (order []int) {
	at := make([]LaneShare, len(lanes))
	left := make([]int, len(lanes))
	for i := range lanes {
		at[i], left[i] = lanes[i].LaneShare, lanes[i].Ready
	}
	f := newFair(at)
	waits := slices.DeleteFunc(slices.Collect(maps.Values(f.orgs)),
		func(o *fairOrg) bool { return o.next(f, left) < 0 })
	for len(order) < places && len(waits) > 0 {
		o := slices.MinFunc(waits, (*fairOrg).compare)
		lane := o.next(f, left)
		order = append(order, lane)
		left[lane]--
		f.charge(lane, 1)
		if o.next(f, left) < 0 {
			waits = slices.DeleteFunc(waits, func(other *fairOrg) bool { return other == o })
		}
	}
	return order
}

// Charge charges the lanes of calls, in the order in which they go, and their organizations, also one that is alone:
// who has not sent yet goes before it then. It returns those lanes.
func Charge(all []LaneShare, calls []LaneKey) (charged []LaneShare) {
	f := newFair(all)
	own := make(map[LaneKey]int, len(all))
	for i := range all {
		own[all[i].LaneKey] = i
	}
	for _, k := range calls {
		f.charge(own[k], 1)
	}
	return slices.DeleteFunc(slices.Clone(all), func(s LaneShare) bool { return !slices.Contains(calls, s.LaneKey) })
}

// fair is a contest of lanes for one budget.
type fair struct {
	lanes []LaneShare
	orgs  map[uuid.UUID]*fairOrg
	// clock is the latest start of a charge of the organizations.
	clock int64
}

// fairOrg is an organization in it.
type fairOrg struct {
	id  uuid.UUID
	tag LaneTag
	// lanes are the indexes of its lanes, clock is the latest start of a charge of them.
	lanes []int
	clock int64
}

func newFair(lanes []LaneShare) *fair {
	f := &fair{lanes: lanes, orgs: map[uuid.UUID]*fairOrg{}}
	for i := range lanes {
		s := &lanes[i]
		o := f.orgs[s.Org]
		if o == nil {
			o = &fairOrg{id: s.Org, tag: s.OrgTag}
			f.orgs[s.Org] = o
			f.clock = max(f.clock, s.OrgTag.Start)
		}
		o.lanes = append(o.lanes, i)
		o.clock = max(o.clock, s.Tag.Start)
	}
	return f
}

// charge charges the lane, and its organization, for n calls.
func (f *fair) charge(lane, n int) {
	s := &f.lanes[lane]
	o := f.orgs[s.Org]
	o.tag = o.tag.charged(f.clock, n, 1)
	s.Tag = s.Tag.charged(o.clock, n, s.Weight)
	f.clock, o.clock = max(f.clock, o.tag.Start), max(o.clock, s.Tag.Start)
	for _, i := range o.lanes {
		f.lanes[i].OrgTag = o.tag
	}
}

// next is the lane of the organization that goes next of those that have calls left, -1 for none.
func (o *fairOrg) next(f *fair, left []int) (lane int) {
	lane = -1
	for _, i := range o.lanes {
		if left[i] > 0 && (lane < 0 || o.before(&f.lanes[i], &f.lanes[lane])) {
			lane = i
		}
	}
	return lane
}

func (o *fairOrg) before(a, b *LaneShare) bool {
	// What was idle starts now, whenever it sent last: it is level with others that were.
	at, bt := Begins(a.Tag.Finish, o.clock), Begins(b.Tag.Finish, o.clock)
	switch {
	case at != bt:
		return at < bt
	case a.Weight != b.Weight:
		return a.Weight > b.Weight
	}
	return a.Lane > b.Lane // the enumeration begins with the lightest
}

// compare says which of two organizations goes first.
func (o *fairOrg) compare(other *fairOrg) int {
	return cmp.Or(cmp.Compare(o.tag.Finish, other.tag.Finish), bytes.Compare(o.id[:], other.id[:]))
}
