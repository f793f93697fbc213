package api

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"flowlane/internal/account"
	"flowlane/internal/api/violation"
	"flowlane/internal/request"
)

// limiter holds organizations to the x-rate-limit of operations, or to what the operator set in its place. Every
// request that its caller may make counts, valid or not.
type limiter struct {
	limits *request.Limits
	// most replaces the number of every limit of the document; 0 for none.
	most int64
}

// rules are what the document says of operations in words of our own.
type rules struct {
	// limits are their x-rate-limit, scopes their x-scope, by the id of the operation.
	limits map[string]request.Limit
	scopes map[string]string
	// open are those that anybody may call, and that tell more to who signs in.
	open map[string]bool
	// roots are the first segments of all paths.
	roots map[string]bool
	// paths are all of them, sorted.
	paths []string
}

// noScope is the x-scope of an operation that needs none.
const noScope = "none"

// documentedRules are those of the document, which is part of the program: an error in it is a mistake of ours, which
// the tests find.
var documentedRules = sync.OnceValue(func() rules {
	doc, err := violation.Document()
	if err == nil {
		var r rules
		if r, err = rulesOf(doc); err == nil {
			return r
		}
	}
	panic(err)
})

func rulesOf(doc map[string]any) (rules, error) {
	r := rules{limits: map[string]request.Limit{}, scopes: map[string]string{}, open: map[string]bool{},
		roots: map[string]bool{}}
	paths, _ := doc["paths"].(map[string]any)
	r.paths = slices.Sorted(maps.Keys(paths))
	for path, item := range paths {
		root, _, _ := strings.Cut(path[1:], "/")
		r.roots[root] = true
		item, _ := item.(map[string]any)
		for _, o := range item {
			o, _ := o.(map[string]any)
			id, _ := o["operationId"].(string)
			security, _ := o["security"].([]any)
			for _, way := range security {
				if way, ok := way.(map[string]any); ok && len(way) == 0 {
					r.open[id] = true
				}
			}
			if scope, ok := o["x-scope"].(string); ok {
				r.scopes[id] = scope
			}
			text, ok := o["x-rate-limit"].(string)
			if !ok {
				continue
			}
			limit, err := request.ParseLimit(text)
			if err != nil {
				return r, fmt.Errorf("openapi.yaml: %s: %w", id, err)
			}
			r.limits[id] = limit
		}
	}
	return r, nil
}

// admit counts a request and says in the header of its answer where the organization stands. Fault: RateLimited.
func (l limiter) admit(ctx context.Context, operation string) error {
	caller := account.FromContext(ctx)
	limit, ok := l.of(caller, operation)
	if !ok {
		return nil
	}
	status, err := l.limits.Count(ctx, caller.OrgID, operation, limit)
	if status.Limit == limit {
		header := exchangeOf(ctx).header
		header.Set("RateLimit-Limit", strconv.FormatInt(limit.Max, 10))
		header.Set("RateLimit-Remaining", strconv.FormatInt(status.Remaining, 10))
		header.Set("RateLimit-Reset", strconv.Itoa(wholeSeconds(status.EndsIn)))
	}
	return err
}

// of is the limit of an operation for a caller. Only operations that nobody has to sign in to have none.
func (l limiter) of(caller account.Caller, operation string) (request.Limit, bool) {
	if text, ok := caller.RequestLimits[operation]; ok {
		if own, err := request.ParseLimit(text); err == nil {
			return own, true
		}
	}
	limit, ok := documentedRules().limits[operation]
	if l.most > 0 {
		limit.Max = l.most
	}
	return limit, ok
}

// Limited reports whether the document has a limit for an operation.
func Limited(operation string) bool {
	_, ok := documentedRules().limits[operation]
	return ok
}

// wholeSeconds rounds up, so that whoever waits for so long has waited long enough.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
