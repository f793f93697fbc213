package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// serving is a server process of its own, whose memory can be measured, with an organization.
type serving struct {
	*apitest.Client
	pid int
	env []string
}

func startServing(t *testing.T, flags ...string) serving {
	t.Helper()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var at urlFacts
	server := launch(t, env, &at, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	return serving{apitest.NewClient(t, at.URL, key.Key), server.Process.Pid, env}
}

// define makes a flow of these steps.
func (s serving) define(steps string) (id any) {
	flow := s.Do(http.MethodPost, "/flows/definitions", `{"name":"f","status":"active","steps":`+steps+`}`)
	return flow.Want(http.StatusCreated).JSON()["id"]
}

// trigger starts a batch of a flow over these records.
func (s serving) trigger(flow any, records string) (batch any) {
	started := s.Do(http.MethodPost, fmt.Sprintf("/flows/definitions/%v/trigger", flow), `{"records":[`+records+`]}`)
	return started.Want(http.StatusOK).JSON()["batch_id"]
}

// over waits until a batch is, and returns it.
func (s serving) over(t *testing.T, id any) map[string]any {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for ; ; <-look.C {
		b := s.Do(http.MethodGet, fmt.Sprintf("/flows/batches/%v", id), nil).Want(http.StatusOK).JSON()
		if status := b["status"]; status != "queued" && status != "running" {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("the batch is still open: %v", b)
		}
	}
}

// TestServe_AnswersInMemory: 96 calls to three hosts are under way at once, and to each comes an answer of 8 MiB.
func TestServe_AnswersInMemory(t *testing.T) {
	t.Parallel()
	const hosts, calls, size = 3, 32, 8 << 20
	var arrived sync.WaitGroup
	arrived.Add(hosts * calls)
	var late atomic.Int32
	answer := []byte(`{"x":"` + strings.Repeat("x", size-8) + `"}`)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := late.Add(1)
		if n > hosts*calls {
			t.Error("a call was sent again")
			return
		}
		arrived.Done()
		arrived.Wait()
		if n%2 == 0 {
			_ = http.NewResponseController(w).Flush() // so that its length is not known
		}
		_, _ = w.Write(answer)
	})
	var urls, flags []string
	for range hosts {
		receiver := httptest.NewServer(handler)
		t.Cleanup(receiver.Close)
		urls, flags = append(urls, receiver.URL), append(flags, "--allow-host", strings.TrimPrefix(receiver.URL,
			"http://"))
	}
	s := startServing(t, flags...)
	var batches []any
	for _, url := range urls {
		flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",
			"params":{"method":"GET","url":"` + url + `"}}]}]`)
		batches = append(batches, s.trigger(flow, strings.TrimSuffix(strings.Repeat("{},", calls), ",")))
	}
	for _, id := range batches {
		if b := s.over(t, id); b["status"] != "completed" {
			t.Errorf("the batch is %v", b)
		}
	}
	had := peak(t, s.pid)
	t.Logf("%d MiB at most", had>>20)
	if had > 600<<20 {
		t.Errorf("the server took %d MiB", had>>20)
	}
}

// TestServe_LargeExecution: an execution with outputs of hundreds of megabytes is read whole, and its job, from a
// process that has no room for it.
func TestServe_LargeExecution(t *testing.T) {
	t.Parallel()
	const steps, tasks, size = 25, 20, 800 << 10
	s := startServing(t)
	var text []string
	for i := range steps {
		var list []string
		for j := range tasks {
			list = append(list, fmt.Sprintf(`{"id":"t%d_%d","action_id":"core__flow__transform",
				"params":{"value":"{{ input.v }}"}}`, i, j))
		}
		text = append(text, fmt.Sprintf(`{"id":"s%d","tasks":[%s]}`, i, strings.Join(list, ",")))
	}
	flow := s.define("[" + strings.Join(text, ",") + "]")
	batch := s.trigger(flow, `{"v":"`+strings.Repeat("0123456789abcdef", size/16)+`"}`)
	if b := s.over(t, batch); b["status"] != "completed" {
		t.Fatalf("the batch is %v", b)
	}
	before := peak(t, s.pid)
	res, err := s.raw(t, fmt.Sprintf("/flows/executions/%v.0.1", batch))
	if err != nil || res < steps*tasks*size {
		t.Errorf("the execution has %d bytes: %v", res, err)
	}
	s.Do(http.MethodGet, fmt.Sprintf("/flows/jobs/%v.0", batch), nil).Want(http.StatusOK)
	after := peak(t, s.pid)
	t.Logf("%d MiB before, %d MiB after", before>>20, after>>20)
	if after > 600<<20 {
		t.Errorf("the server took %d MiB", after>>20)
	}
}

// raw reads an answer without keeping it, and returns its length, if it is JSON.
func (s serving) raw(t *testing.T, path string) (int64, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1"+path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-API-Key", s.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d", res.StatusCode)
	}
	text := json.NewDecoder(res.Body)
	for {
		if _, err := text.Token(); errors.Is(err, io.EOF) {
			return text.InputOffset(), nil
		} else if err != nil {
			return 0, err
		}
	}
}
