package cells_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// commonHost is the host whose requests go by what they name; a cell's own begins with its name.
const commonHost = "flows.example.com"

// kek is the key-encryption key of all cells.
var kek = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "flowlane-cells-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// program builds the service, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "flowlane")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", path, "flowlane/cmd/flowlane")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build flowlane: %w\n%s", err, said)
	}
	return path, nil
})

// cell is a database and a process that serves it.
type cell struct {
	t    *testing.T
	no   int
	dsn  string
	pool *pgxpool.Pool
	// url is the root of its process.
	url string
	// settings are those of its processes beside the database.
	settings []string
}

// name is how the proxy calls it.
func (c *cell) name() string { return "cell" + strconv.Itoa(c.no) }

// newCell makes a cell, and starts a process in it.
func newCell(t *testing.T, no int, settings ...string) *cell {
	t.Helper()
	c := &cell{t: t, no: no, settings: settings}
	c.dsn, c.pool = pgtest.NewEmpty(t)
	c.run(nil, "migrate", "up", "--cell", strconv.Itoa(no))
	c.serve()
	return c
}

// newCellBeside makes a cell of the same installation.
func newCellBeside(other *cell, no int) *cell {
	t := other.t
	t.Helper()
	c := &cell{t: t, no: no, settings: other.settings}
	c.dsn, c.pool = pgtest.NewEmpty(t)
	c.run(nil, "migrate", "up", "--cell", strconv.Itoa(no), "--join-database-url", other.dsn)
	c.serve()
	return c
}

func (c *cell) command(args ...string) *exec.Cmd {
	c.t.Helper()
	path, err := program()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+c.dsn, "FLOWLANE_KEK="+kek, "FLOWLANE_DATA_DIR="+c.t.TempDir())
	cmd.Env = append(cmd.Env, c.settings...)
	return cmd
}

// run runs a command of the operator in the cell, and reads what it says into facts unless that is nil.
func (c *cell) run(facts any, args ...string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	cmd := c.command(append(args, "--json")...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("flowlane %v: %v\n%s", args, err, &errs)
	}
	if facts != nil {
		if err := json.Unmarshal(out.Bytes(), facts); err != nil {
			c.t.Fatalf("flowlane %v said %q: %v", args, &out, err)
		}
	}
}

// serve starts a process, which is killed when the test ends.
func (c *cell) serve() {
	c.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	at := listener.Addr().String()
	_ = listener.Close()
	c.url = "http://" + at
	cmd := c.command("serve")
	cmd.Env = append(cmd.Env, "FLOWLANE_LISTEN="+at, "FLOWLANE_OPERATOR_LISTEN=none")
	log := &bytes.Buffer{}
	start(c.t, cmd, log)
	ready(c.t, c.url+"/readyz", http.StatusOK, log)
}

// start starts a program, which is killed when the test ends.
func start(t *testing.T, cmd *exec.Cmd, log *bytes.Buffer) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			text := log.String()
			t.Logf("%s said, at the end:\n%s", filepath.Base(cmd.Path), text[max(0, len(text)-4000):])
		}
	})
}

// ready waits until an address answers so.
func ready(t *testing.T, url string, status int, log fmt.Stringer) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-tick.C {
		if res, err := http.Get(url); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == status {
				return
			}
		}
	}
	t.Fatalf("%s does not answer %d: %s", url, status, log)
}

// proxy is an nginx before cells.
type proxy struct {
	t *testing.T
	// url is where it listens.
	url string
}

// newProxy starts nginx with the configuration that ships, in which the addresses are those of the cells.
func newProxy(t *testing.T, cells ...*cell) *proxy {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("nginx is missing: apt-get install nginx-light")
		}
		t.Skip("nginx is not installed")
	}
	shipped, err := os.ReadFile("../../deploy/cells/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	_ = listener.Close()
	replace := []string{"listen 80;", "listen " + at + ";"}
	for _, c := range cells {
		replace = append(replace,
			fmt.Sprintf("server 10.0.%d.10:8080; server 10.0.%d.11:8080;", c.no, c.no),
			"server "+strings.TrimPrefix(c.url, "http://")+";")
	}
	text := string(shipped)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("deploy/cells/nginx.conf has no %q", replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	text = fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n",
		dir, temp, text)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	start(t, exec.Command(nginx, "-e", "stderr", "-p", dir, "-c", conf), log)
	p := &proxy{t: t, url: "http://" + at}
	ready(t, p.url+"/healthz", http.StatusOK, log)
	return p
}

// client sends requests to a host of the proxy, with a key.
func (p *proxy) client(key string) *apitest.Client {
	p.t.Helper()
	c := apitest.NewClient(p.t, p.url, key)
	c.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// org is an organization with what it has in its cell.
type org struct {
	*cell

	id, key string
}

// newOrg makes an organization with a key.
func (c *cell) newOrg(name string) org {
	c.t.Helper()
	var made struct{ ID, Key string }
	c.run(&made, "org", "create", "--name", name)
	o := org{cell: c, id: made.ID}
	c.run(&made, "apikey", "create", "--org", o.id, "--name", "test")
	o.key = made.Key
	return o
}

// hook is a webhook of an organization.
type hook struct{ id, path, secret string }

const transform = `{"name":"one","status":"active","steps":[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]}`

// newHook makes a webhook of a flow that calls nobody.
func newHook(t *testing.T, c *apitest.Client) (h hook, definition string) {
	t.Helper()
	var made struct {
		ID     string
		Secret string `json:"signing_secret"`
		URL    string `json:"receive_url"`
	}
	c.Do(http.MethodPost, "/flows/definitions", transform).Want(http.StatusCreated).Into(&made)
	definition = made.ID
	c.Do(http.MethodPost, "/flows/webhooks", fmt.Sprintf(`{"definition_id":%q,"description":"cells","rate_limit":1000000}`, definition)).
		Want(http.StatusCreated).Into(&made)
	return hook{id: made.ID, path: made.URL, secret: made.Secret}, definition
}

// post sends a message to a webhook, at a host.
func (h hook) post(t *testing.T, c *apitest.Client, host, message string) apitest.Response {
	t.Helper()
	body, now := fmt.Sprintf(`{"id":%q}`, message), time.Now()
	signature, err := webhook.Sign(h.secret, message, now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return c.As("").Do(http.MethodPost, h.path, body, "Host", host, "webhook-id", message, "webhook-timestamp",
		strconv.FormatInt(now.Unix(), 10), "webhook-signature", signature)
}
