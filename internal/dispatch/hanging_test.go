package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider"
)

// hanging are the addresses of receivers that take requests and answer none of them before the test ends.
func hanging(t *testing.T, receivers int) (urls []string) {
	t.Helper()
	over := make(chan struct{})
	for range receivers {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	t.Cleanup(func() { close(over) })
	return urls
}

// unreachable are addresses that drop packets.
func unreachable(t *testing.T, receivers int) (urls []string) {
	t.Helper()
	for range receivers {
		urls = append(urls, "http://"+dropped(t))
	}
	return urls
}

// postAll is a flow of one request to each address, side by side.
func postAll(urls []string) string {
	var tasks []string
	for i, url := range urls {
		tasks = append(tasks, fmt.Sprintf(
			`{"id":"t%d","action_id":"core__http__request","params":{"method":"POST","url":%q},"timeout_seconds":600}`,
			i, url))
	}
	return flowOf(strings.Join(tasks, ","))
}

// However many calls of others wait for a connection or for an answer, a record of one more organization is sent while
// all of them wait.
func TestWaitingTakesNoPlace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		receivers func(t *testing.T, n int) []string
		count     int
		// start starts what waits, and returns how many calls that makes.
		start func(b *bundle, urls []string) int
	}{
		"Organizations": {hanging, 1, func(b *bundle, urls []string) int {
			for i := range 16 {
				b.join(fmt.Sprintf("Slow %d", i))
				b.start(b.define(postAll(urls)), 1, plainRow)
			}
			return 16
		}},
		"Addresses": {unreachable, 16, func(b *bundle, urls []string) int {
			for i := range urls {
				b.start(b.define(postAll(urls[i:i+1])), 1, plainRow)
			}
			return 16
		}},
		"Tasks": {hanging, 40, func(b *bundle, urls []string) int {
			for _, half := range [][]string{urls[:20], urls[20:]} {
				flow := b.define(postAll(half))
				b.start(flow, 1, plainRow)
				b.start(flow, 1, plainRow)
			}
			return 80
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls := tt.receivers(t, tt.count)
			good := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			t.Cleanup(good.Close)
			out := provider.Options{DialTimeout: time.Hour}
			for _, url := range append(urls, good.URL) {
				out.AllowHosts = append(out.AllowHosts, strings.TrimPrefix(url, "http://"))
			}
			b := setupSender(t, dispatch.Options{}, asIs, out)
			defer b.hangUp()
			calls := tt.start(b, urls)
			b.join("Quick")
			id := b.start(b.define(post(good.URL, "")), 1, plainRow)
			if status, counts := b.await(id); status != batch.BatchCompleted {
				t.Errorf("batch ended %s with %+v", status, counts)
			}
			if n := b.count("SELECT count(*) FROM flow.exchange"); n != 1 {
				t.Errorf("%d calls are over, want the one: the others do not wait", n)
			}
			b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
				return b.count("SELECT count(*) FROM flow.call WHERE state = 'intent'") == calls
			})
		})
	}
}

// hangUp ends the calls that are under way.
func (b *bundle) hangUp() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	b.disp.Shutdown(over)
}
