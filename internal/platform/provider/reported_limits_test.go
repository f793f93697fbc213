package provider_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// TestReportedLimits: what headers tell is read where it is clear which window they speak of, and nothing else is.
func TestReportedLimits(t *testing.T) {
	t.Parallel()
	minute := &catalog.RateBucket{Windows: map[int]int{60: 100}}
	several := &catalog.RateBucket{Windows: map[int]int{60: 100, 86400: 5000},
		Further: []catalog.Window{{Seconds: 10, Calls: 20, Kind: "rolling"}}}
	named := &catalog.RateBucket{Windows: map[int]int{86400: 5000}, Further: []catalog.Window{{Seconds: 10, Calls: 20,
		Kind: "rolling"}}, ReportedLimits: []catalog.ReportedLimit{
		{WindowSeconds: 86400, Pair: "Sforce-Limit-Info"}, {WindowSeconds: 10, Limit: "X-Secondly",
			Remaining: "X-Secondly-Left"}}}
	for name, c := range map[string]struct {
		bucket *catalog.RateBucket
		h      map[string]string
		want   []provider.Counter
	}{
		"plain": {minute, map[string]string{"X-RateLimit-Limit": "90", "X-RateLimit-Remaining": "30"},
			[]provider.Counter{{WindowSeconds: 60, Limit: 90, Value: 60}}},
		"draft": {minute, map[string]string{"RateLimit-Limit": "90, 90;w=60", "RateLimit-Remaining": "30"},
			[]provider.Counter{{WindowSeconds: 60, Limit: 90, Value: 60}}},
		"policy": {several, map[string]string{"RateLimit-Policy": `"burst";q=20;w=10, "day";q=9000;w=86400`,
			"RateLimit": `"day";r=8999;t=5, "burst";r=4;t=2`}, []provider.Counter{{WindowSeconds: 10, Limit: 20,
			Value: 16}, {WindowSeconds: 86400, Limit: 9000, Value: 1}}},
		"by its cap": {several, map[string]string{"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "4999"},
			[]provider.Counter{{WindowSeconds: 86400, Limit: 5000, Value: 1}}},
		"of which": {several, map[string]string{"X-RateLimit-Limit": "777", "X-RateLimit-Remaining": "1"}, nil},
		"named": {named, map[string]string{"Sforce-Limit-Info": "api-usage=18/4000", "X-Secondly": "19",
			"X-Secondly-Left": "7", "X-RateLimit-Limit": "1"}, []provider.Counter{{WindowSeconds: 86400, Limit: 4000,
			Value: 18}, {WindowSeconds: 10, Limit: 19, Value: 12}}},
		"and others": {named, map[string]string{
			"Sforce-Limit-Info": "api-usage=18/4000; per-app-api-usage=17/250(appName=crm)"},
			[]provider.Counter{{WindowSeconds: 86400, Limit: 4000, Value: 18}}},
		"only a limit": {named, map[string]string{"X-Secondly": "19"},
			[]provider.Counter{{WindowSeconds: 10, Limit: 19, Value: -1}}},
		"no numbers":    {minute, map[string]string{"X-RateLimit-Limit": "many", "X-RateLimit-Remaining": "-1"}, nil},
		"nothing":       {minute, map[string]string{"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0"}, nil},
		"broken policy": {several, map[string]string{"RateLimit-Policy": `;;q=;w=x,,`, "RateLimit": "r=1"}, nil},
	} {
		h := http.Header{}
		for k, v := range c.h {
			h.Set(k, v)
		}
		assert.Equal(t, c.want, provider.ReportedLimits(&provider.Answer{Header: h}, c.bucket), name)
	}
}

// TestTold_Body: costs and what is left are read from fields of an answer, as Shopify tells them.
func TestTold_Body(t *testing.T) {
	t.Parallel()
	bucket := &catalog.RateBucket{Further: []catalog.Window{{Seconds: 20, Calls: 2000, Kind: "rolling"}},
		Cost: &catalog.Cost{Field: "cost.actual", Header: "X-Cost"},
		ReportedLimits: []catalog.ReportedLimit{{WindowSeconds: 20, In: "body", Limit: "cost.status.max",
			Remaining: "cost.status.left", Restore: "cost.status.rate"}}}
	for name, c := range map[string]struct {
		body string
		want []provider.Counter
		cost int
	}{
		"reported": {`{"cost":{"actual":7.2,"status":{"max":2000.0,"left":1500,"rate":100.0}}}`,
			[]provider.Counter{{WindowSeconds: 20, Limit: 2000, Value: 500}}, 8},
		"slower": {`{"cost":{"actual":0,"status":{"max":2000,"left":1999,"rate":50}}}`,
			[]provider.Counter{{WindowSeconds: 20, Limit: 1000, Value: 1}}, 0},
		"no cost":  {`{"cost":{"actual":"7","status":{"left":1}}}`, nil, -1},
		"negative": {`{"cost":{"actual":-1,"status":{"max":-5,"left":1,"rate":-1}}}`, nil, -1},
		"huge": {`{"cost":{"actual":1e30,"status":{"max":1e30,"left":0,"rate":1e30}}}`,
			[]provider.Counter{{WindowSeconds: 20, Limit: 2147483640, Value: 2147483647}}, 2147483647},
		"not an answer": {`<html>`, nil, -1},
	} {
		ans := provider.Answer{Header: http.Header{}, Body: []byte(c.body)}
		assert.Equal(t, c.want, provider.ReportedLimits(&ans, bucket), name)
		cost, ok := provider.Cost(&ans, bucket)
		assert.Equal(t, c.cost >= 0, ok, name)
		assert.Equal(t, max(c.cost, 0), cost, name)
	}
	cost, ok := provider.Cost(&provider.Answer{Header: http.Header{"X-Cost": {"3"}},
		Body: []byte(`{"cost":{"actual":9}}`)}, bucket)
	assert.True(t, ok)
	assert.Equal(t, 3, cost)
	_, ok = provider.Cost(&provider.Answer{Header: http.Header{"X-Cost": {"3"}}}, &catalog.RateBucket{})
	assert.False(t, ok)
}
