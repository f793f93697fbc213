package flowlane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"time"
)

const longestWait = 10 * time.Second

// harmless are the operations that may be carried out twice although they are a POST without a key.
var harmless = map[string]bool{
	"AppendRecords": true, "SealRecordSet": true, "ValidateDefinition": true, "DryRunDefinition": true,
	"EstimateUpload": true,
	"TestCredential": true, "CreateStreamToken": true,
}

func repeatable(c call) bool {
	return c.method != http.MethodPost && c.method != http.MethodPatch || keyed[c.operation] || harmless[c.operation]
}

// again tells whether a request that failed so may be sent again, and after what time the service wants it.
func (*Client) again(c call, err error) (wait time.Duration, again bool) {
	var refused *APIError
	if !errors.As(err, &refused) {
		return 0, repeatable(c)
	}
	switch refused.Status {
	case http.StatusTooManyRequests:
		return refused.RetryAfter, true
	case http.StatusServiceUnavailable:
		return refused.RetryAfter, repeatable(c) || refused.RetryAfter > 0 && refused.Code != "outcome_unknown"
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return 0, repeatable(c)
	default:
		return 0, false
	}
}

func (c *Client) retries() int {
	switch {
	case c.Retries == 0:
		return 5
	default:
		return max(0, c.Retries)
	}
}

func (c *Client) silence() time.Duration {
	if c.longestSilence > 0 {
		return c.longestSilence
	}
	return 45 * time.Second
}

// backoff is the wait after some failures: half of it by chance, so that many clients do not come at once.
func (c *Client) backoff(failures int) time.Duration {
	most := c.Backoff
	if most <= 0 {
		most = 250 * time.Millisecond
	}
	for ; failures > 0 && most < longestWait; failures-- {
		most *= 2
	}
	most = min(most, longestWait)
	return most/2 + rand.N(most/2+1)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	}
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return r.IsNil()
	default:
		return false
	}
}
