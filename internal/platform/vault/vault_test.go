package vault_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/pg"
	"flowlane/internal/platform/vault"
	"flowlane/test/pgtest"
)

func key(t *testing.T, fill byte) vault.KEK {
	t.Helper()
	kek, err := vault.LoadKEK(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32)), "")
	if err != nil {
		t.Fatal(err)
	}
	return kek
}

type bundle struct {
	pool  *pgxpool.Pool
	vault *vault.Vault
	org   uuid.UUID
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{pool: pgtest.New(t), vault: open(t, key(t, 1))}
	b.org = b.addOrg(t)
	return b
}

func open(t *testing.T, kek vault.KEK) *vault.Vault {
	t.Helper()
	v, err := vault.New(kek)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (b *bundle) addOrg(t *testing.T) uuid.UUID {
	t.Helper()
	var id uuid.UUID
	b.inTx(t, func(ctx context.Context, tx pgx.Tx) error {
		org, err := account.CreateOrg(ctx, tx, "Org")
		id = org.ID
		return err
	})
	return id
}

func (b *bundle) inTx(t *testing.T, do func(ctx context.Context, tx pgx.Tx) error) {
	t.Helper()
	if err := pg.InTx(t.Context(), b.pool, do); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) put(t *testing.T, org, id uuid.UUID, plain string) (version int64) {
	t.Helper()
	b.inTx(t, func(ctx context.Context, tx pgx.Tx) (err error) {
		version, err = b.vault.Put(ctx, tx, org, id, []byte(plain))
		return err
	})
	return version
}

func (b *bundle) mustGet(t *testing.T, org, id uuid.UUID, want string, wantVersion int64) {
	t.Helper()
	plain, version, err := b.vault.Get(t.Context(), b.pool, org, id)
	if err != nil || string(plain) != want || version != wantVersion {
		t.Errorf("Get = %q, version %d, %v; want %q, version %d", plain, version, err, want, wantVersion)
	}
}

func TestVault_PutGetDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, other := uuid.New(), b.addOrg(t)
	if got := b.put(t, b.org, id, "hunter2"); got != 1 {
		t.Errorf("first version = %d", got)
	}
	b.mustGet(t, b.org, id, "hunter2", 1)
	if got := b.put(t, b.org, id, "correct horse"); got != 2 {
		t.Errorf("second version = %d", got)
	}
	b.mustGet(t, b.org, id, "correct horse", 2)
	if _, _, err := b.vault.Get(t.Context(), b.pool, other, id); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("another organization's Get: %v", err)
	}
	err := pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := b.vault.Put(ctx, tx, other, id, []byte("mine now"))
		return err
	})
	if err == nil {
		t.Error("another organization took over the id")
	}
	b.mustGet(t, b.org, id, "correct horse", 2)
	b.inTx(t, func(ctx context.Context, tx pgx.Tx) error { return b.vault.Delete(ctx, tx, b.org, id) })
	if _, _, err := b.vault.Get(t.Context(), b.pool, b.org, id); !errors.Is(err, vault.ErrMissing) {
		t.Errorf("Get after Delete: %v", err)
	}
}

func TestVault_CiphertextIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine, stolen := uuid.New(), uuid.New()
	b.put(t, b.org, mine, "mine")
	b.put(t, b.org, stolen, "stolen")
	for name, change := range map[string]string{
		"another id": "UPDATE flow.secret s SET ciphertext = o.ciphertext " +
			"FROM flow.secret o WHERE s.id = $1 AND o.id = $2",
		"another version": "UPDATE flow.secret SET version = 7 WHERE id = $1 OR id = $2",
	} {
		err := pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, change, mine, stolen); err != nil {
				return err
			}
			if plain, _, err := b.vault.Get(ctx, tx, b.org, mine); err == nil {
				t.Errorf("%s: decrypted to %q", name, plain)
			}
			return errRollBack
		})
		if !errors.Is(err, errRollBack) {
			t.Fatal(err)
		}
	}
	b.mustGet(t, b.org, mine, "mine", 1)
}

var errRollBack = errors.New("roll back")

func TestVault_NothingPlainInTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, b.org, uuid.New(), "hunter2-needle")
	var found bool
	err := b.pool.QueryRow(t.Context(), "SELECT position('hunter2-needle'::bytea IN ciphertext) > 0 FROM flow.secret").
		Scan(&found)
	if err != nil || found {
		t.Errorf("plaintext found = %v, %v", found, err)
	}
}

func TestVault_RotateOrgKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := []uuid.UUID{uuid.New(), uuid.New()}
	for i, id := range ids {
		b.put(t, b.org, id, fmt.Sprint("secret ", i))
	}
	before := b.keyset(t)
	b.inTx(t, func(ctx context.Context, tx pgx.Tx) error { return b.vault.RotateOrgKey(ctx, tx, b.org) })
	for i, id := range ids {
		b.mustGet(t, b.org, id, fmt.Sprint("secret ", i), 1)
	}
	after := b.keyset(t)
	if bytes.Equal(before, after) {
		t.Error("the keyset did not change")
	}
	// The old keyset alone no longer opens anything.
	if _, err := b.pool.Exec(t.Context(), "UPDATE flow.org_keyset SET wrapped = $1", before); err != nil {
		t.Fatal(err)
	}
	if plain, _, err := b.vault.Get(t.Context(), b.pool, b.org, ids[0]); err == nil {
		t.Errorf("the old key still decrypts: %q", plain)
	}
	b.inTx(t, func(ctx context.Context, tx pgx.Tx) error { return b.vault.RotateOrgKey(ctx, tx, b.addOrg(t)) })
}

func (b *bundle) keyset(t *testing.T) (wrapped []byte) {
	t.Helper()
	if err := b.pool.QueryRow(t.Context(), "SELECT wrapped FROM flow.org_keyset WHERE org_id = $1",
		b.org).Scan(&wrapped); err != nil {
		t.Fatal(err)
	}
	return wrapped
}

func TestVault_RotationWaitsForWriters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, b.org, uuid.New(), "first")
	late := uuid.New()
	writer, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback(t.Context()) //nolint:errcheck // after the commit there is nothing to roll back
	if _, err := b.vault.Put(t.Context(), writer, b.org, late, []byte("late")); err != nil {
		t.Fatal(err)
	}
	// The rotation cannot see the new secret yet: without waiting it would throw away the key that it needs.
	err = pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '50ms'"); err != nil {
			return err
		}
		return b.vault.RotateOrgKey(ctx, tx, b.org)
	})
	var waited *pgconn.PgError
	if !errors.As(err, &waited) || waited.Code != "55P03" {
		t.Errorf("rotation beside an open write: %v, want that it waits", err)
	}
	if err := writer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.inTx(t, func(ctx context.Context, tx pgx.Tx) error { return b.vault.RotateOrgKey(ctx, tx, b.org) })
	b.mustGet(t, b.org, late, "late", 1)
}

func TestVault_WrongKEK(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := uuid.New()
	b.put(t, b.org, id, "hunter2")
	_, _, err := open(t, key(t, 2)).Get(t.Context(), b.pool, b.org, id)
	if err == nil || !strings.Contains(err.Error(), vault.KEKVariable) {
		t.Errorf("err = %v, want one that says what to set", err)
	}
}

func TestLoadKEK(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	file := filepath.Join(dir, "kek")
	write := func(mode os.FileMode, content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(0o600, text+"\n")
	fromFile, err := vault.LoadKEK("", file)
	if err != nil {
		t.Fatal(err)
	}
	if fromEnv, err := vault.LoadKEK(text, "/nowhere"); err != nil || fromEnv != fromFile {
		t.Errorf("the variable gives another key: %v", err)
	}
	write(0o644, text)
	if _, err := vault.LoadKEK("", file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	write(0o440, text)
	if _, err := vault.LoadKEK("", file); err == nil {
		t.Error("a file of its own that its group can read is taken")
	}
	if os.Geteuid() == 0 { // who gives a file away
		if err := os.Chown(file, 65534, 0); err != nil {
			t.Fatal(err)
		}
		if lent, err := vault.LoadKEK("", file); err != nil || lent != fromFile {
			t.Errorf("a file of somebody else's that its group can read: %v", err)
		}
		for _, mode := range []os.FileMode{0o444, 0o460} {
			write(mode, text)
			if _, err := vault.LoadKEK("", file); err == nil {
				t.Errorf("a file of somebody else's with mode %o is taken", mode)
			}
		}
	}
	const short = "c2hvcnQgbmVlZGxl"
	write(0o600, short)
	if _, err := vault.LoadKEK("", file); err == nil || strings.Contains(err.Error(), short) {
		t.Errorf("a short key: %v", err)
	}
	if _, err := vault.LoadKEK("", ""); err == nil || !strings.Contains(err.Error(), vault.KEKVariable) {
		t.Errorf("no key: %v", err)
	}
}

func TestLoadOrCreateKEK(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kek")
	first, err := vault.LoadOrCreateKEK("", file, bytes.NewReader(bytes.Repeat([]byte{3}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := vault.LoadOrCreateKEK("", file, bytes.NewReader(bytes.Repeat([]byte{4}, 32)))
	if err != nil || first != second || first != key(t, 3) {
		t.Errorf("the second start has another key: %v", err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

func TestKEK_IsNeverPrinted(t *testing.T) {
	t.Parallel()
	kek := key(t, 'K')
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "kek", kek)
	text := fmt.Sprintf("%v %+v %#v %s %s", kek, kek, kek, kek, log.String())
	if strings.Contains(text, "75 75") || strings.Contains(text, "KKK") || strings.Contains(text, "4b4b") ||
		strings.Contains(text, "S0tL") {
		t.Errorf("printed: %s", text)
	}
}
