package ha_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	nodes = 3
	// outside is the address of whoever is no node.
	outside = "10.77.0.254"
	// ttl is how long a node leads that has not renewed its lead, in seconds: the least that Patroni takes.
	ttl = 20
)

// settings are those of Patroni that docs/availability.md tells, with the addresses of a node.
const settings = `
scope: flowlane
name: %[1]s
restapi: {listen: "%[2]s:8008", connect_address: "%[2]s:8008"}
etcd: {hosts: [%[5]s]}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 5
    retry_timeout: 5
    synchronous_mode: true
    failsafe_mode: true
    primary_start_timeout: 0
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 100
        wal_sender_timeout: 10s
        wal_receiver_timeout: 10s
        tcp_keepalives_idle: 5
        tcp_keepalives_interval: 2
        tcp_keepalives_count: 3
  initdb: [{encoding: UTF8}, {locale: C.UTF-8}, data-checksums]
postgresql:
  listen: "%[2]s:5432"
  connect_address: "%[2]s:5432"
  data_dir: "%[3]s/data"
  bin_dir: "` + binaries + `"
  pgpass: "%[3]s/pgpass"
  authentication:
    superuser: {username: postgres, password: "%[4]s"}
    replication: {username: replicator, password: "%[4]s"}
  pg_hba:
  - host all all 10.77.0.0/24 scram-sha-256
  - host replication replicator 10.77.0.0/24 scram-sha-256
  parameters: {unix_socket_directories: "%[3]s"}
`

// cluster is three nodes, each with its Postgres, its Patroni and its member of etcd.
type cluster struct {
	*testing.T

	dir, password string
	nodes         []*node
}

// node is one machine: a network namespace with all that runs in it.
type node struct {
	name, address, config string
	log                   *os.File
	etcd                  *exec.Cmd
	etcdEnded             chan struct{}
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir(), password: rand.Text()}
	owner := must(user.Lookup("postgres"))
	uid, gid := must(strconv.Atoi(owner.Uid)), must(strconv.Atoi(owner.Gid))
	for dir := c.dir; dir != filepath.Dir(os.TempDir()) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		c.check(os.Chmod(dir, 0o755)) //nolint:gosec // Postgres does not run as root, and must enter it
	}
	c.command("ip", "link", "add", "lan", "type", "bridge")
	c.command("ip", "addr", "add", outside+"/24", "dev", "lan")
	c.command("ip", "link", "set", "lan", "up")
	t.Cleanup(c.end)
	var clients []string
	for i := range nodes {
		name := fmt.Sprintf("pg%d", i+1)
		n := &node{name: name, address: fmt.Sprintf("10.77.0.%d", i+1), config: filepath.Join(c.dir, name, "patroni.yml")}
		c.nodes, clients = append(c.nodes, n), append(clients, strconv.Quote(n.address+":2379"))
	}
	for _, n := range c.nodes {
		c.check(os.MkdirAll(filepath.Dir(n.config), 0o700))
		text := fmt.Sprintf(settings, n.name, n.address, filepath.Dir(n.config), c.password, strings.Join(clients, ", "))
		c.check(os.WriteFile(n.config, []byte(text), 0o600))
		for _, path := range []string{filepath.Dir(n.config), n.config} {
			c.check(os.Chown(path, uid, gid))
		}
		n.log = must(os.Create(filepath.Join(c.dir, n.name+".log")))
		c.command("ip", "netns", "add", n.name)
		c.command("ip", "link", "add", n.name, "type", "veth", "peer", "name", "eth0", "netns", n.name)
		c.command("ip", "-n", n.name, "addr", "add", n.address+"/24", "dev", "eth0")
		c.command("ip", "-n", n.name, "link", "set", "lo", "up")
		c.command("ip", "-n", n.name, "link", "set", "eth0", "up")
		c.command("ip", "link", "set", n.name, "master", "lan", "up")
	}
	for _, n := range c.nodes {
		c.start(n)
	}
	c.healthy(2 * time.Minute)
	return c
}

// startEtcd starts the member of a node. Its elections bear with a busy machine.
func (c *cluster) startEtcd(n *node) {
	c.Helper()
	var members []string
	for _, m := range c.nodes {
		members = append(members, m.name+"=http://"+m.address+":2380")
	}
	client, peer := "http://"+n.address+":2379", "http://"+n.address+":2380"
	n.etcd = exec.Command("ip", "netns", "exec", n.name, "etcd", "--name", n.name, "--data-dir",
		filepath.Join(c.dir, n.name+".etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
		strings.Join(members, ","), "--heartbeat-interval", "250", "--election-timeout", "2500", "--enable-v2",
		"--logger", "zap", "--log-outputs", filepath.Join(c.dir, n.name+".etcd.log"))
	c.check(n.etcd.Start())
	n.etcdEnded = reap(n.etcd)
}

// killEtcd kills the members of some nodes.
func (c *cluster) killEtcd(of ...*node) {
	c.Helper()
	for _, n := range of {
		c.check(n.etcd.Process.Kill())
		<-n.etcdEnded
	}
}

// start starts what runs on a node: its member of etcd, and its Patroni, and with it Postgres.
func (c *cluster) start(n *node) {
	c.Helper()
	c.startEtcd(n)
	cmd := exec.Command("ip", "netns", "exec", n.name, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
		"patroni", n.config)
	cmd.Stdout, cmd.Stderr = n.log, n.log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(n.config), "LANG=C.UTF-8"}
	c.check(cmd.Start())
	reap(cmd)
}

// end ends all, so that nothing writes any more to the folder of the test.
func (c *cluster) end() {
	for _, n := range c.nodes {
		for pids(n) != "" {
			c.signal(n, syscall.SIGKILL)
		}
	}
}

// pids are the processes of a node.
func pids(n *node) string {
	out, _ := exec.Command("ip", "netns", "pids", n.name).Output() // none where it fails: the node is not there
	return string(out)
}

// signal sends a signal to all that runs on a node.
func (c *cluster) signal(n *node, s syscall.Signal) {
	c.Helper()
	for _, pid := range strings.Fields(pids(n)) {
		_ = syscall.Kill(must(strconv.Atoi(pid)), s) // it may have ended
	}
}

// killPostgres kills the postmaster of a node, and nothing else.
func (c *cluster) killPostgres(n *node) {
	c.Helper()
	text := string(must(os.ReadFile(filepath.Join(filepath.Dir(n.config), "data", "postmaster.pid"))))
	pid, _, _ := strings.Cut(text, "\n")
	c.check(syscall.Kill(must(strconv.Atoi(pid)), syscall.SIGKILL))
}

// cut pulls the cable of a node; what is sent gets lost from then on, and nobody is told. mend puts it back.
func (c *cluster) cut(n *node)  { c.Helper(); c.command("ip", "link", "set", n.name, "nomaster") }
func (c *cluster) mend(n *node) { c.Helper(); c.command("ip", "link", "set", n.name, "master", "lan") }

func (c *cluster) switchover() {
	c.Helper()
	c.command("patronictl", "-c", c.nodes[0].config, "switchover", "--force")
}

// member is what Patroni says of a node.
type member struct{ Name, Role, State string }

// members are those that the first node names that answers.
func (c *cluster) members() []member {
	client := http.Client{Timeout: time.Second}
	for _, n := range c.nodes {
		res, err := client.Get("http://" + n.address + ":8008/cluster")
		if err != nil {
			continue
		}
		var out struct{ Members []member }
		err = json.NewDecoder(res.Body).Decode(&out)
		_ = res.Body.Close()
		if err == nil && len(out.Members) > 0 {
			return out.Members
		}
	}
	return nil
}

// in is the node that has a role.
func (c *cluster) in(role string) *node {
	c.Helper()
	for _, m := range c.members() {
		if i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == m.Name }); i >= 0 && m.Role == role {
			return c.nodes[i]
		}
	}
	c.Fatalf("no node is %s: %v", role, c.members())
	return nil
}

// healthy waits until one node leads and both others follow, one of them in step.
func (c *cluster) healthy(waitLimit time.Duration) {
	c.Helper()
	until(c.T, "one node leads and two follow", waitLimit, func() bool {
		roles := map[string]int{}
		for _, m := range c.members() {
			if m.State == "running" || m.State == "streaming" {
				roles[m.Role]++
			}
		}
		return roles["leader"] == 1 && roles["sync_standby"] == 1 && roles["replica"] == 1
	}, func() { c.Logf("%v\n%s", c.members(), c.logs()) })
}

// has waits until every node has a database: who connects to one that lags, and has it not yet, tries no other.
func (c *cluster) has(database string) {
	c.Helper()
	for _, n := range c.nodes {
		until(c.T, n.name+" has the database", time.Minute, func() bool {
			conn, err := pgx.Connect(c.Context(), c.dsnOf(database, n))
			if err == nil {
				_ = conn.Close(c.Context())
			}
			return err == nil
		}, func() {})
	}
}

// logs are the ends of what the nodes said.
func (c *cluster) logs() string {
	var out strings.Builder
	for _, n := range c.nodes {
		text := must(os.ReadFile(n.log.Name()))
		fmt.Fprintf(&out, "%s:\n%s\n", n.name, text[max(0, len(text)-3000):])
	}
	return out.String()
}

// dsn names all nodes; whoever connects takes the one that takes writes.
func (c *cluster) dsn(database string) string {
	return c.dsnOf(database, c.nodes...) + "&target_session_attrs=read-write"
}

func (c *cluster) dsnOf(database string, of ...*node) string {
	var hosts []string
	for _, n := range of {
		hosts = append(hosts, n.address+":5432")
	}
	return fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable&connect_timeout=2", c.password,
		strings.Join(hosts, ","), database)
}

// command runs a program and returns what it printed.
func (c *cluster) command(name string, args ...string) string {
	c.Helper()
	cmd := exec.Command(name, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		c.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

func (c *cluster) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// reap waits for a process, and tells when it has ended.
func reap(cmd *exec.Cmd) chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	return ended
}

// until polls until the condition holds; where it does not, explain says more.
func until(t *testing.T, what string, waitLimit time.Duration, holds func() bool, explain func()) {
	t.Helper()
	deadline, tick := time.After(waitLimit), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			explain()
			t.Fatalf("waited %s in vain until %s", waitLimit, what)
		case <-t.Context().Done():
			t.FailNow()
		case <-tick.C:
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
