package cli_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// said runs a command, whatever becomes of it, and returns all that it prints.
func said(t *testing.T, env []string, args ...string) string {
	t.Helper()
	out, _ := program(t, append(env, "FLOWLANE_LOG_LEVEL=debug"), args...).CombinedOutput()
	if len(out) == 0 {
		t.Errorf("flowlane %s says nothing", strings.Join(args, " "))
	}
	return string(out)
}

// The secrets of this file begin with kAnAry, or are 32 bytes that nothing else has.
const (
	canaryPassword = "kAnAryPass0123456789"
	canaryKEK      = "a0FuQXJ5S2V5RW5jcnlwdGlvbktleTAxMjM0NTY3ODk=" // kAnAryKeyEncryptionKey0123456789
	canaryPEM      = "-----BEGIN PRIVATE KEY-----\nkAnAryPrivateKey0123456789\n-----END PRIVATE KEY-----\n"
)

// TestCanaries: no command prints a secret that is stored, or that it was given, but for keys that it makes.
func TestCanaries(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + canaryKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var at urlFacts
	server := launch(t, append(env, "FLOWLANE_LOG_LEVEL=debug", "FLOWLANE_OPERATOR_TOKEN=kAnAryOperatorToken01"), &at,
		"serve", "--listen", "127.0.0.1:0")
	client := apitest.NewClient(t, at.URL, key.Key)
	client.Do("POST", "/credentials",
		`{"name":"c","platform_id":"core","auth_method":"basic_auth","allowed_origins":["https://example.com"],
		"credentials":{"username":"me","password":"`+canaryPassword+`"}}`).Want(http.StatusCreated)
	flow := client.Do("POST", "/flows/definitions", `{"name":"f","status":"active","steps":[{"id":"s","tasks":[
		{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]}`).Want(
		http.StatusCreated).JSON()["id"].(string)
	hook := client.Do("POST", "/flows/webhooks", `{"definition_id":"`+flow+`","description":"w"}`).Want(
		http.StatusCreated).JSON()
	secret, path := hook["signing_secret"].(string), hook["receive_url"].(string)
	rows := filepath.Join(t.TempDir(), "rows.ndjson")
	if err := os.WriteFile(rows, []byte(`{"id":1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets := []string{
		key.Key, secret, strings.TrimPrefix(secret, "whsec_"), canaryKEK, "kAnAryKeyEncryptionKey0123456789",
		"kAnAryPass",
		canaryPassword[6:],
		"kAnAryPrivateKey", "kAnAryOperatorToken01",
	}
	if u, err := url.Parse(dsn); err == nil {
		if password, _ := u.User.Password(); len(password) > 15 { // one that was made for the tests
			secrets = append(secrets, password)
		}
	}

	caller := slices.Concat(env, []string{
		"FLOWLANE_URL=" + at.URL, "FLOWLANE_API_KEY=" + key.Key, "FLOWLANE_WEBHOOK_SECRET=" + secret,
	})
	places := map[string]string{}
	run := func(env []string, args ...string) {
		t.Helper()
		places[fmt.Sprint(len(places), " ", strings.Join(args[:min(2, len(args))], " "))] = said(t, env, args...)
	}
	for _, args := range [][]string{
		{"org", "list"}, {"org", "suspend", "--org", org.ID}, {"org", "suspend", "--org", org.ID, "--resume"},
		{"org", "set", "--org", org.ID, "--start-budget", "9"}, {"org", "link", "--org", org.ID, "--external-id",
			"acme"},
		{"hold", "all", "--reason", "r"}, {"release", "all"}, {"audit", "export", "--org", org.ID},
		{"migrate", "up"}, {"migrate", "status"}, {"vault", "rotate"}, {"vault", "rewrap"},
		{"records", "upload", rows, "--no-resume"}, {"demo", "--records", "1"}, {"webhook", "send", "--url", path,
			rows},
		{"version"}, {"--help"}, {"serve", "--help"}, {"apikey", "create", "--help"},
	} {
		run(caller, args...)
		run(caller, append(args, "--json")...)
	}
	for _, mistake := range mistakes(dsn, org.ID, rows, path, secret) {
		run(append(caller, mistake.env...), mistake.args...)
	}
	server.stop(t, syscall.SIGTERM)
	places["the log of the server"] = server.stderr.String()
	apitest.WantNo(t, secrets, places)
}

// mistake is how a secret comes to where none, or another one, belongs.
type mistake struct{ env, args []string }

func mistakes(dsn, org, rows, path, secret string) (all []mistake) {
	list, serve := []string{"org", "list"}, []string{"serve", "--listen", "127.0.0.1:0"}
	for _, address := range []string{
		"postgres://me:PASS@127.0.0.1:1/x", "postgres://me:PASS@127.0.0.1:port/x", "postgres://me:PASS/x",
		"postgres://me:PASS%zz@127.0.0.1/x",
		"postgres://me:kAn:Ary@PASS@h:x/", "postgres://me:PASS @127.0.0.1/x",
		"postgres://me:PASS@127.0.0.1/x?sslmode=maybe",
		"postgres://me:PASS@127.0.0.1/x?sslrootcert=/nowhere&sslmode=verify-full",
		"postgres://127.0.0.1:1/x?password=PASS",
		"postgres://127.0.0.1:x/x?password=PASS", "host=127.0.0.1 port=1 password=PASS",
		"host=127.0.0.1 port=x password=PASS",
		"host=127.0.0.1 port=x password='kA PASS'", "host=127.0.0.1 password='PASS", "host=127.0.0.1 password=a PASS",
		"PASS",
		"mysql://me:PASS@127.0.0.1/x", dsn + "&password=PASS", "postgres:/me:PASS@127.0.0.1:1/x",
	} {
		env := []string{"DATABASE_URL=" + strings.ReplaceAll(address, "PASS", canaryPassword)}
		all = append(all, mistake{env, list}, mistake{env, serve})
	}
	for _, env := range []string{
		"FLOWLANE_KEK=" + canaryPassword, "FLOWLANE_OTHER_KEK=" + canaryPassword, "FLOWLANE_KEK=;FLOWLANE_KEK_FILE=" +
			canaryKEK,
		"FLOWLANE_KEK=;FLOWLANE_KEK_FILE=" + rows, "FLOWLANE_KEK=;FLOWLANE_KEK_COMMAND=" + canaryKEK,
		"FLOWLANE_KEK=;FLOWLANE_KEK_COMMAND=echo " + canaryPassword, "FLOWLANE_KEK=;FLOWLANE_KEK_COMMAND=ls " +
			canaryPassword,
		"FLOWLANE_TLS_CERT=" + rows + ";FLOWLANE_TLS_KEY=" + canaryPEM, "FLOWLANE_TLS_KEY=" + canaryPEM,
		"FLOWLANE_OPERATOR_TOKEN=kAnAryOperatorToken01;FLOWLANE_OPERATOR_LISTEN=nowhere",
		"FLOWLANE_SIM_URL=http://me:" + canaryPassword + "@", "FLOWLANE_BASE_URLS=dialer=ftp://me:" + canaryPassword +
			"@x",
		"FLOWLANE_JWT_ISSUER=i;FLOWLANE_JWT_AUDIENCE=a;FLOWLANE_JWT_KEYS_URL=ftp://me:" + canaryPassword + "@x",
	} {
		one := strings.Split(env, ";")
		all = append(all, mistake{one, serve}, mistake{one, []string{"apikey", "create", "--org", "none", "--name",
			"n"}},
			mistake{one, []string{"vault", "rewrap"}})
	}
	for _, env := range []string{
		"FLOWLANE_URL=http://me:" + canaryPassword + "@127.0.0.1:1", "FLOWLANE_URL=" + canaryPassword,
		"FLOWLANE_URL=http://" + canaryPassword + "\x7f@x", "FLOWLANE_API_KEY=" + canaryPassword, "FLOWLANE_API_KEY=" +
			canaryPassword + "\nx",
		"FLOWLANE_WEBHOOK_SECRET=whsec_" + canaryPassword + "!", "FLOWLANE_WEBHOOK_SECRET=" + canaryPassword,
	} {
		for _, args := range [][]string{
			{"demo", "--records", "1"}, {"records", "upload", rows, "--no-resume"}, {"webhook", "send", "--url", path,
				rows},
		} {
			all = append(all, mistake{[]string{env}, args})
		}
	}
	return append(all,
		mistake{nil, []string{"webhook", "send", "--url", "http://me:" + canaryPassword + "@127.0.0.1:1" + path, rows}},
		mistake{nil, []string{"webhook", "send", "--url", path, "--secret-env", secret, rows}},
		mistake{nil, []string{"webhook", "send", "--url", path, "--secret-file", secret, rows}},
		mistake{nil, []string{"serve", "--apikey=" + canaryPassword}},
		mistake{nil, []string{"org", "list", "--kek=" + canaryPassword}},
		mistake{nil, []string{"org", "list", "--kek", canaryPassword}},
		mistake{nil, []string{"audit", "export", "--org", org, "--api-key", canaryPassword}},
	)
}
