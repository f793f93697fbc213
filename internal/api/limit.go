package api

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/ogen-go/ogen/middleware"

	"flowlane/internal/account"
	"flowlane/internal/api/violation"
	"flowlane/internal/request"
)

// limiter holds organizations to the x-rate-limit of operations. Every authenticated request counts, valid or not.
type limiter struct {
	limits *request.Limits
	// most replaces the number of every limit of the document; 0 for none.
	most int64
}

// documentedLimits are the limits of the document, by operation. The document is part of the program, so an error in it is a
// mistake of ours, which the tests find.
var documentedLimits = sync.OnceValue(func() map[string]request.Limit {
	doc, err := violation.Document()
	if err == nil {
		var limits map[string]request.Limit
		if limits, err = limitsOf(doc); err == nil {
			return limits
		}
	}
	panic(err)
})

func limitsOf(doc map[string]any) (map[string]request.Limit, error) {
	limits := map[string]request.Limit{}
	paths, _ := doc["paths"].(map[string]any)
	for _, item := range paths {
		item, _ := item.(map[string]any)
		for _, o := range item {
			o, _ := o.(map[string]any)
			text, ok := o["x-rate-limit"].(string)
			if !ok {
				continue
			}
			limit, err := request.ParseLimit(text)
			if err != nil {
				return nil, fmt.Errorf("openapi.yaml: %v: %w", o["operationId"], err)
			}
			limits[fmt.Sprint(o["operationId"])] = limit
		}
	}
	return limits, nil
}

func (l limiter) middleware(req middleware.Request, next middleware.Next) (middleware.Response, error) {
	if err := l.admit(req.Context, req.OperationID); err != nil {
		return middleware.Response{}, err
	}
	return next(req)
}

// admit counts a request and says in the header of its answer where the organization stands. Fault: RateLimited.
func (l limiter) admit(ctx context.Context, operation string) error {
	limit, ok := documentedLimits()[operation]
	if !ok {
		return nil
	}
	if l.most > 0 {
		limit.Max = l.most
	}
	standing, err := l.limits.Count(ctx, account.FromContext(ctx).OrgID, operation, limit)
	if standing.Limit == limit {
		header := exchangeOf(ctx).header
		header.Set("RateLimit-Limit", strconv.FormatInt(limit.Max, 10))
		header.Set("RateLimit-Remaining", strconv.FormatInt(standing.Remaining, 10))
		header.Set("RateLimit-Reset", strconv.Itoa(wholeSeconds(standing.EndsIn)))
	}
	return err
}

// wholeSeconds rounds up, so that whoever waits for so long has waited long enough.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
