package provider_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/catalog"
	"flowlane/internal/provider"
)

// TestTold: what headers tell is read where it is clear which window they speak of, and nothing else is.
func TestTold(t *testing.T) {
	t.Parallel()
	minute := &catalog.RateBucket{Windows: map[int]int{60: 100}}
	several := &catalog.RateBucket{Windows: map[int]int{60: 100, 86400: 5000}, Further: []catalog.Window{{Seconds: 10, Calls: 20, Kind: "rolling"}}}
	named := &catalog.RateBucket{Windows: map[int]int{86400: 5000}, Further: []catalog.Window{{Seconds: 10, Calls: 20, Kind: "rolling"}}, Told: []catalog.Told{
		{WindowSeconds: 86400, Pair: "Sforce-Limit-Info"}, {WindowSeconds: 10, Limit: "X-Secondly", Remaining: "X-Secondly-Left"}}}
	for name, c := range map[string]struct {
		bucket *catalog.RateBucket
		h      map[string]string
		want   []provider.Counter
	}{
		"plain":         {minute, map[string]string{"X-RateLimit-Limit": "90", "X-RateLimit-Remaining": "30"}, []provider.Counter{{WindowSeconds: 60, Limit: 90, Value: 60}}},
		"draft":         {minute, map[string]string{"RateLimit-Limit": "90, 90;w=60", "RateLimit-Remaining": "30"}, []provider.Counter{{WindowSeconds: 60, Limit: 90, Value: 60}}},
		"policy":        {several, map[string]string{"RateLimit-Policy": `"burst";q=20;w=10, "day";q=9000;w=86400`, "RateLimit": `"day";r=8999;t=5, "burst";r=4;t=2`}, []provider.Counter{{WindowSeconds: 10, Limit: 20, Value: 16}, {WindowSeconds: 86400, Limit: 9000, Value: 1}}},
		"by its cap":    {several, map[string]string{"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "4999"}, []provider.Counter{{WindowSeconds: 86400, Limit: 5000, Value: 1}}},
		"of which":      {several, map[string]string{"X-RateLimit-Limit": "777", "X-RateLimit-Remaining": "1"}, nil},
		"named":         {named, map[string]string{"Sforce-Limit-Info": "api-usage=18/4000", "X-Secondly": "19", "X-Secondly-Left": "7", "X-RateLimit-Limit": "1"}, []provider.Counter{{WindowSeconds: 86400, Limit: 4000, Value: 18}, {WindowSeconds: 10, Limit: 19, Value: 12}}},
		"and others":    {named, map[string]string{"Sforce-Limit-Info": "api-usage=18/4000; per-app-api-usage=17/250(appName=crm)"}, []provider.Counter{{WindowSeconds: 86400, Limit: 4000, Value: 18}}},
		"only a limit":  {named, map[string]string{"X-Secondly": "19"}, []provider.Counter{{WindowSeconds: 10, Limit: 19, Value: -1}}},
		"no numbers":    {minute, map[string]string{"X-RateLimit-Limit": "many", "X-RateLimit-Remaining": "-1"}, nil},
		"nothing":       {minute, map[string]string{"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0"}, nil},
		"broken policy": {several, map[string]string{"RateLimit-Policy": `;;q=;w=x,,`, "RateLimit": "r=1"}, nil},
	} {
		h := http.Header{}
		for k, v := range c.h {
			h.Set(k, v)
		}
		assert.Equal(t, c.want, provider.Told(h, c.bucket), name)
	}
}
