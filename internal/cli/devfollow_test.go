package cli_test

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// screen is a process whose lines are read as they come.
type screen struct {
	t     *testing.T
	lines *bufio.Scanner
}

// waitLimit is after how long a process that does not say what is waited for is ended, so that the test shows what it
// said.
const waitLimit = 2 * time.Minute

// show starts a process that goes on until the test ends.
func show(t *testing.T, args ...string) *screen {
	t.Helper()
	cmd := program(t, nil, args...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(waitLimit, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		end.Stop()
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return &screen{t, bufio.NewScanner(pipe)}
}

// await reads up to a line that holds a text, and returns that line.
func (s *screen) await(want string) string {
	s.t.Helper()
	var seen []string
	for s.lines.Scan() {
		if strings.Contains(s.lines.Text(), want) {
			return s.lines.Text()
		}
		seen = append(seen, s.lines.Text())
	}
	s.t.Fatalf("nothing says %q:\n%s", want, strings.Join(seen, "\n"))
	return ""
}

const (
	savedFlow = `name: parcel
status: active
steps:
  - id: send
    tasks:
      - {id: send, action_id: parcels__api__send, params: {to: "{{ input.to }}"}}
`
	savedCatalog = `id: parcels
name: Parcels
description: Sends parcels.
status: active
services:
  - id: parcels__api
    name: API
    description: Parcels and labels.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://parcels.example/v1
    status: active
    actions:
      - id: parcels__api__send
        name: Send
        description: Sends a parcel.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, required: [to], properties: {to: {type: string}}}
        call: {method: POST, path: /parcels, body: {to: "{{ params.to }}"}, answer: {success: [201], output: [id]}}
`
)

// TestDev_Saved: a development server takes in flows and catalog files as they are saved; a mistake is named with file
// and line, and leaves in force what was there; nobody is turned away meanwhile.
func TestDev_Saved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flows, catalog := filepath.Join(dir, "flows"), filepath.Join(dir, "catalog")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{flows, catalog} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	flow, file := filepath.Join(flows, "parcel.yaml"), filepath.Join(catalog, "parcels.yaml")
	write(flow, savedFlow)
	write(filepath.Join(flows, "parcel.test.yaml"), "flow: parcel.yaml\n") // a test is no flow
	s := show(t, "dev", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--flows-dir", flows,
		"--catalog-dir", catalog)
	_, at, _ := strings.Cut(s.await("  URL  "), "http://")

	s.await(flow + `:6: steps.0.tasks.0.action_id: There is no such action in the catalog`)
	s.await("The flows stay as they were.")

	var refused atomic.Int64
	stop, asked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asked)
		var dialer net.Dialer
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			conn, err := dialer.DialContext(t.Context(), "tcp", at)
			if err != nil {
				refused.Add(1)
				continue
			}
			_ = conn.Close()
		}
	}()
	write(file, strings.Replace(savedCatalog, "outcome_check", "outcome_chek", 1))
	s.await(file + ":20: unknown key outcome_chek")
	s.await("The catalog stays as it was.")
	write(file, savedCatalog)
	s.await("catalog: " + catalog + " is taken in")
	s.await("created parcel, version 1")
	close(stop)
	<-asked
	if n := refused.Load(); n > 0 {
		t.Errorf("%d connections were refused while the catalog was taken in", n)
	}

	write(flow, strings.Replace(savedFlow, "input.to", "inptu.to", 1))
	s.await(flow + `:6: steps.0.tasks.0.params.to: {{ inptu.to }}: unknown name "inptu"`)
	write(flow, strings.Replace(savedFlow, "input.to", "input.address", 1))
	s.await("changed parcel, version 2")
}
