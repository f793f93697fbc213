package catalog

import (
	"cmp"
	"slices"
)

// Catalog is the loaded catalog. It never changes, so that it may be shared by any number of goroutines; what it hands
// out must not be changed.
type Catalog struct {
	platforms    map[string]*Platform
	services     map[string]*Service
	actions      map[string]*Action
	order        []*Platform
	serviceOrder []*Service
	actionOrder  []*Action

	organizations Organizations
}

// Platforms returns every platform: those that come with the program first, then those of the folder by file name.
func (c *Catalog) Platforms() []*Platform { return c.order }

// Platform returns the platform of this id.
func (c *Catalog) Platform(id string) (*Platform, bool) {
	p, ok := c.platforms[id]
	return p, ok
}

// AllServices returns the services of every platform, in the order of the files.
func (c *Catalog) AllServices() []*Service { return c.serviceOrder }

// Services returns the services of one platform; none for an unknown one.
func (c *Catalog) Services(platformID string) []*Service {
	if p, ok := c.platforms[platformID]; ok {
		return p.Services
	}
	return nil
}

// Service returns the service of this id.
func (c *Catalog) Service(id string) (*Service, bool) {
	s, ok := c.services[id]
	return s, ok
}

// AllActions returns the actions of every service, in the order of the files.
func (c *Catalog) AllActions() []*Action { return c.actionOrder }

// Actions returns the actions of one service; none for an unknown one.
func (c *Catalog) Actions(serviceID string) []*Action {
	if s, ok := c.services[serviceID]; ok {
		return s.Actions
	}
	return nil
}

// Action returns the action of this id.
func (c *Catalog) Action(id string) (*Action, bool) {
	a, ok := c.actions[id]
	return a, ok
}

// Bucket returns a rate bucket of the action's service; nil for one that does not exist.
func (c *Catalog) Bucket(a *Action, name string) *RateBucket {
	if s, ok := c.services[a.ServiceID]; ok {
		return s.RateBuckets[name]
	}
	return nil
}

// Lines are the buckets in whose queues calls wait that may spend a bucket of the service: its own, and the first
// bucket of each action that spends it beside that.
func (s *Service) Lines(bucket string) []string {
	out := []string{bucket}
	for _, a := range s.Actions {
		if slices.Index(a.Buckets, bucket) > 0 && !slices.Contains(out, a.Buckets[0]) {
			out = append(out, a.Buckets[0])
		}
	}
	return out
}

// ServiceOf returns the service that has a bucket; nil where none has.
func (p *Platform) ServiceOf(bucket string) *Service {
	for _, s := range p.Services {
		if s.RateBuckets[bucket] != nil {
			return s
		}
	}
	return nil
}

// Lane returns where calls of an action go unless somebody says otherwise: the lane that its bucket has for it, before
// the bucket's own, before the action's.
func (c *Catalog) Lane(a *Action) string {
	for _, name := range a.Buckets {
		if b := c.Bucket(a, name); b != nil {
			if l := cmp.Or(b.DefaultLaneByAction[a.ID], b.DefaultLane); l != "" {
				return l
			}
		}
	}
	return cmp.Or(a.DefaultLane, DefaultLane)
}

// Metered reports whether a platform has accounts with budgets, so that its credentials must be identified.
func (p *Platform) Metered() bool { return p.Account != nil }

// OwnerLimited reports whether the limits of a platform's accounts are those that their owner sets, and not the
// catalog's.
func (p *Platform) OwnerLimited() bool { return p.Private && p.Account != nil }
