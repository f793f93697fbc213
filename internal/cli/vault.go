package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/platform/vault"
)

// keyring says where the key-encryption key is.
type keyring struct {
	KEK        string `name:"kek" env:"FLOWLANE_KEK" help:"Key-encryption key: 32 bytes in base64. Better set by the environment."`
	KEKFile    string `name:"kek-file" env:"FLOWLANE_KEK_FILE" help:"File with the key-encryption key, readable by its owner only."`
	KEKCommand string `name:"kek-command" env:"FLOWLANE_KEK_COMMAND" help:"Program that prints the key-encryption key, for one that a key management service keeps; with its arguments, without a shell."`
	OtherKEK   string `name:"other-kek" env:"FLOWLANE_OTHER_KEK" help:"A second key-encryption key, while the first is being replaced: it opens what is stored under it."`
}

// kekTime bounds the program that prints the key.
const kekTime = 30 * time.Second

// load returns the key, and the other one where there is one. Without a setting it is a file of the data folder, which
// is made when it is missing.
func (k keyring) load(ctx context.Context, p *process, f folder) (vault.KEK, []vault.KEK, error) {
	var others []vault.KEK
	if k.OtherKEK != "" {
		other, err := vault.ParseKEK(k.OtherKEK, vault.OtherKEKVariable)
		if err != nil {
			return vault.KEK{}, nil, err //nolint:wrapcheck // says what to set
		}
		others = append(others, other)
	}
	kek, err := k.current(ctx, p, f)
	return kek, others, err
}

func (k keyring) current(ctx context.Context, p *process, f folder) (vault.KEK, error) {
	if words := strings.Fields(k.KEKCommand); len(words) > 0 && k.KEK == "" && k.KEKFile == "" {
		if _, err := vault.ParseKEK(words[0], ""); err == nil {
			return vault.KEK{}, fmt.Errorf("--kek-command is a key, not a program that prints it: set %s to it",
				vault.KEKVariable)
		}
		ctx, cancel := context.WithTimeout(ctx, kekTime)
		defer cancel()
		text, err := exec.CommandContext(ctx, words[0], words[1:]...).Output() //nolint:gosec // the operator names it
		if err != nil {
			return vault.KEK{}, fmt.Errorf("run %s for the key-encryption key: %w", words[0], err)
		}
		return vault.ParseKEK(string(text), words[0]) //nolint:wrapcheck // says what to set
	}
	path := f.kekFile()
	if k.KEK != "" || k.KEKFile != "" && k.KEKFile != path {
		return vault.LoadKEK(k.KEK, k.KEKFile) //nolint:wrapcheck // says what to set
	}
	//nolint:gosec // Postgres's own user must reach its data below
	if err := os.MkdirAll(f.DataDir, 0o755); err != nil {
		return vault.KEK{}, fmt.Errorf("make the data folder; choose another with --data-dir: %w", err)
	}
	p.log.Info("using the key-encryption key of the data folder; keep it: "+
		"without it stored credentials and API keys are lost", "file", path,
		"or_set", vault.KEKVariable)
	return vault.LoadOrCreateKEK("", path, rand.Reader) //nolint:wrapcheck // says what to set
}

// vault opens the vault with these keys.
func (k keyring) vault(ctx context.Context, p *process, f folder) (*vault.Vault, error) {
	kek, others, err := k.load(ctx, p, f)
	if err != nil {
		return nil, err
	}
	return vault.New(kek, others...) //nolint:wrapcheck // says everything
}

type vaultCommand struct {
	Rewrap vaultRewrap `cmd:"" help:"Bring everything that is stored under --other-kek under --kek. Processes go on meanwhile."`
	Rotate vaultRotate `cmd:"" help:"Give every organization a new key, and encrypt its secrets again. Processes go on meanwhile."`
}

// vaultWork is what both commands need.
type vaultWork struct {
	database
	keyring
	output
}

func (c *vaultWork) run(ctx context.Context, p *process, say string,
	do func(*vault.Vault, *pgxpool.Pool) (int, error)) error {
	v, err := c.vault(ctx, p, c.folder)
	if err != nil {
		return err
	}
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	n, err := do(v, pool)
	if err != nil {
		return unmigrated(err)
	}
	return c.print(p, struct {
		Keys int `json:"keys"`
	}{n}, func(w io.Writer) { fmt.Fprintf(w, say+"\n", n) })
}

type vaultRewrap struct{ vaultWork }

// Run is the last step but one of replacing the key-encryption key.
func (c *vaultRewrap) Run(ctx context.Context, p *process) error {
	return c.run(ctx, p, "%d keys brought under the new key-encryption key; no process needs the other one any more.",
		func(v *vault.Vault, pool *pgxpool.Pool) (int, error) { return v.Rewrap(ctx, pool) })
}

type vaultRotate struct{ vaultWork }

// Run replaces the keys of all organizations.
func (c *vaultRotate) Run(ctx context.Context, p *process) error {
	return c.run(ctx, p, "%d organizations have new keys.",
		func(v *vault.Vault, pool *pgxpool.Pool) (int, error) { return v.RotateAll(ctx, pool) })
}
