package provider

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// ReportedLimits is what an answer's headers tell of the windows of a bucket: those that the catalog names, else
// RateLimit-Policy with RateLimit, RateLimit-Limit with RateLimit-Remaining, or the same with X- before it. Where a
// header does not say which window it speaks of, it is the only one of the bucket, or the only one with that cap. Value
// is -1 where only the limit is told.
func ReportedLimits(ans *Answer, b *catalog.RateBucket) (out []Counter) {
	h := ans.Header
	if len(b.ReportedLimits) > 0 {
		for _, t := range b.ReportedLimits {
			if c, ok := reportedBy(ans, t); ok {
				out = append(out, c)
			}
		}
		return out
	}
	if !hasLimits(h) {
		return nil
	}
	if out = structured(h, b); len(out) > 0 {
		return out
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-"} {
		limit, remaining := h.Get(prefix+"Limit"), h.Get(prefix+"Remaining")
		n, ok := count(strings.TrimSpace(cutAny(limit, ",;")))
		left, okLeft := count(remaining)
		if !ok || n == 0 || !okLeft {
			continue
		}
		if seconds := windowOf(b, n); seconds > 0 {
			return []Counter{{WindowSeconds: seconds, Limit: n, Value: max(n-left, 0)}}
		}
	}
	return nil
}

// hasLimits rules most answers out: to ask for headers that are not there in their canonical form takes an allocation
// each.
func hasLimits(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit") {
			return true
		}
	}
	return false
}

// reportedBy reads the headers or fields that the catalog names.
func reportedBy(ans *Answer, t catalog.ReportedLimit) (c Counter, ok bool) {
	c = Counter{WindowSeconds: t.WindowSeconds, Value: -1}
	number := func(name string) (int, bool) { return count(ans.Header.Get(name)) }
	if t.In == "body" {
		number = ans.number
	}
	if t.Pair != "" {
		text := cutAny(ans.Header.Get(t.Pair), ",;") // others may follow, such as those of one app
		used, limit, _ := strings.Cut(text[strings.LastIndex(text, "=")+1:], "/")
		n, okUsed := count(used)
		most, okLimit := count(limit)
		if okUsed && okLimit && most > 0 {
			return Counter{WindowSeconds: t.WindowSeconds, Limit: most, Value: n}, true
		}
		return c, false
	}
	limit, okLimit := number(t.Limit)
	if okLimit && limit > 0 {
		c.Limit, ok = limit, true
	}
	if left, is := number(t.Remaining); is && ok && t.Remaining != "" {
		c.Value = max(limit-left, 0)
	}
	if used, is := number(t.Used); is && t.Used != "" {
		c.Value, ok = used, true
	}
	if each, is := number(t.Restore); is && ok && each > 0 && t.Restore != "" {
		c.Limit = min(c.Limit, min(each, maxCount/t.WindowSeconds)*t.WindowSeconds)
	}
	return c, ok
}

// Cost is what an answer says that its call has cost of a bucket.
func Cost(ans *Answer, b *catalog.RateBucket) (int, bool) {
	if b.Cost == nil {
		return 0, false
	}
	if b.Cost.Header != "" {
		if n, ok := count(ans.Header.Get(b.Cost.Header)); ok {
			return n, true
		}
	}
	return ans.number(b.Cost.Field)
}

// number is a number in the body that is not negative, rounded up.
func (a *Answer) number(field string) (int, bool) {
	if field == "" || len(a.Body) == 0 {
		return 0, false
	}
	v := parse(a.Value(nil)).Get(field)
	if n := math.Ceil(v.Num); v.Type == gjson.Number && n >= 0 {
		return int(min(n, maxCount)), true
	}
	return 0, false
}

// reset is how long it takes until a window is over that is spent by what an answer's headers tell: the one that the
// catalog names, else RateLimit, RateLimit-Reset or X-RateLimit-Reset. It is in seconds, or a Unix time in seconds or
// milliseconds, alone or behind a name ("total=700;remaining=0;resets=12"). Where a header says that something is left,
// the limit that refused the call is another one.
func reset(ans Answer, named string) (time.Duration, bool) {
	if named != "" {
		return resetOf(ans, ans.Header.Get(named))
	}
	for _, item := range items(ans.Header, "RateLimit") {
		if left, ok := count(item.params["r"]); ok && left == 0 {
			return resetOf(ans, item.params["t"])
		}
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-"} {
		if left, ok := count(ans.Header.Get(prefix + "Remaining")); ok && left > 0 {
			continue
		}
		if wait, ok := resetOf(ans, ans.Header.Get(prefix+"Reset")); ok {
			return wait, true
		}
	}
	return 0, false
}

// leastEpoch tells times from durations: no window is thirty years long. Times in milliseconds are beyond leastMillis.
const leastEpoch, leastMillis = 1e9, 1e11

func resetOf(ans Answer, text string) (time.Duration, bool) {
	for _, part := range strings.SplitN(text, ";", itemsMost) {
		if name, value, is := strings.Cut(strings.TrimSpace(part), "="); is && strings.HasPrefix(strings.ToLower(name),
			"reset") {
			text = value
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(n >= 0 && n < 1e14) {
		return 0, false
	}
	wait := time.Duration(math.Ceil(min(n, leastEpoch) * float64(time.Second)))
	switch {
	case n >= leastMillis:
		wait = time.UnixMilli(int64(math.Ceil(n))).Sub(answeredAt(ans))
	case n >= leastEpoch:
		wait = time.UnixMilli(int64(math.Ceil(n * 1000))).Sub(answeredAt(ans))
	}
	return min(max(wait, 0), maxWait), true
}

// structured reads RateLimit-Policy ("name";q=100;w=60) and RateLimit ("name";r=50;t=30).
func structured(h http.Header, b *catalog.RateBucket) (out []Counter) {
	left := map[string]int{}
	for _, item := range items(h, "RateLimit") {
		if r, ok := count(item.params["r"]); ok {
			left[item.name] = r
		}
	}
	for _, item := range items(h, "RateLimit-Policy") {
		quota, ok := count(item.params["q"])
		r, known := left[item.name]
		if !ok || !known || quota == 0 {
			continue
		}
		seconds, ok := count(item.params["w"])
		if !ok {
			seconds = windowOf(b, quota)
		}
		for _, length := range b.Lengths() {
			if length == seconds {
				out = append(out, Counter{WindowSeconds: seconds, Limit: quota, Value: max(quota-r, 0)})
			}
		}
	}
	return out
}

// NamesWindow reports whether an answer's headers say of a window how long it is.
func NamesWindow(ans *Answer, seconds int) bool {
	return slices.ContainsFunc(items(ans.Header, "RateLimit-Policy"), func(item limitItem) bool {
		length, ok := count(item.params["w"])
		return ok && length == seconds
	})
}

// limitItem is an item of a list of a structured header.
type limitItem struct {
	name   string
	params map[string]string
}

// itemsMost bounds what is read of one header.
const itemsMost = 10

func items(h http.Header, name string) (out []limitItem) {
	for _, text := range strings.SplitN(strings.Join(h.Values(name), ","), ",", itemsMost) {
		parts := strings.Split(text, ";")
		item := limitItem{strings.Trim(strings.TrimSpace(parts[0]), `"`), map[string]string{}}
		for _, p := range parts[1:] {
			key, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			item.params[key] = value
		}
		out = append(out, item)
	}
	return out
}

// windowOf is the length of the window that a limit is of; 0 where nobody can tell.
func windowOf(b *catalog.RateBucket, limit int) int {
	lengths := b.Lengths()
	if len(lengths) == 1 {
		return lengths[0]
	}
	found := 0
	for _, seconds := range lengths {
		calls := b.Windows[seconds]
		for _, w := range b.Further {
			if w.Seconds == seconds {
				calls = w.Calls
			}
		}
		if calls != limit {
			continue
		}
		if found > 0 {
			return 0
		}
		found = seconds
	}
	return found
}

// count reads a number of calls.
func count(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return min(n, maxCount), err == nil && n >= 0
}

// cutAny is what stands before the first of some characters.
func cutAny(text, chars string) string {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i]
	}
	return text
}
