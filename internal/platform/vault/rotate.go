package vault

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// Rewrap brings everything that is stored under another key-encryption key under the current one, and returns how many
// keys that were. Secrets stay as they are. Afterwards no process needs the other keys. It may be repeated, and run
// beside processes that have both keys.
func (v *Vault) Rewrap(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	if _, err := v.Root(ctx, pool); err != nil {
		return 0, err
	}
	count := 0
	err := pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := v.queries.VaultRootLock(ctx, tx)
		if err != nil {
			return fmt.Errorf("lock the root key: %w", err)
		}
		if row.KekID == v.kekID {
			return nil
		}
		root, err := v.openRoot(row.KekID, row.Wrapped)
		if err != nil {
			return err
		}
		wrapped, err := v.wrapper.Encrypt(root.bytes[:], rootBinding)
		if err != nil {
			return fmt.Errorf("encrypt the root key: %w", err)
		}
		count++
		return v.queries.VaultRootReplace(ctx, tx, db.VaultRootReplaceParams{KekID: v.kekID, Wrapped: wrapped})
	})
	if err != nil {
		return 0, err
	}
	n, err := v.eachKeyset(ctx, pool, &v.kekID, v.rewrapOrg)
	return count + n, err
}

// RotateAll gives every organization a new key, one transaction each, and returns how many have one.
func (v *Vault) RotateAll(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	return v.eachKeyset(ctx, pool, nil, v.RotateOrgKey)
}

// eachKeyset does something for every organization that has a keyset, under another key-encryption key than this unless
// that is nil.
func (v *Vault) eachKeyset(ctx context.Context, pool *pgxpool.Pool, otherThan *string, do func(context.Context, pgx.Tx,
	uuid.UUID) error) (int, error) {
	var after uuid.UUID
	for n := 0; ; n++ {
		next, err := v.queries.VaultKeysetOrgs(ctx, pool, db.VaultKeysetOrgsParams{After: after, OtherThan: otherThan})
		if err != nil {
			return n, fmt.Errorf("list the keysets: %w", err)
		}
		if len(next) == 0 {
			return n, nil
		}
		after = next[0]
		if err := pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			return do(ctx, tx,
				after)
		}); err != nil {
			return n, err
		}
	}
}

func (v *Vault) rewrapOrg(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) error {
	row, err := v.queries.VaultKeysetLock(ctx, tx, orgID)
	if err != nil {
		return fmt.Errorf("lock the keyset of organization %s: %w", orgID, err)
	}
	handle, err := v.unwrap(orgID, row.KekID, row.Wrapped)
	if err != nil {
		return err
	}
	wrapped, err := v.wrap(orgID, handle)
	if err != nil {
		return err
	}
	if err := v.queries.VaultKeysetRewrap(ctx, tx, db.VaultKeysetRewrapParams{OrgID: orgID, KekID: v.kekID,
		Wrapped: wrapped}); err != nil {
		return fmt.Errorf("store the keyset of organization %s: %w", orgID, err)
	}
	return nil
}

// RotateOrgKey gives the organization a new key, encrypts all of its secrets again and forgets the old key. Readers are
// not held up; writers of secrets wait for tx to end. An organization without secrets needs no key yet: nothing
// happens.
func (v *Vault) RotateOrgKey(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) error {
	row, err := v.queries.VaultKeysetLock(ctx, tx, orgID)
	if pg.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock the keyset of organization %s: %w", orgID, err)
	}
	old, err := v.unwrap(orgID, row.KekID, row.Wrapped)
	if err != nil {
		return err
	}
	fresh, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return fmt.Errorf("make a keyset: %w", err)
	}
	if err := v.reencrypt(ctx, tx, orgID, old, fresh); err != nil {
		return err
	}
	wrapped, err := v.wrap(orgID, fresh)
	if err != nil {
		return err
	}
	if err := v.queries.VaultKeysetReplace(ctx, tx, db.VaultKeysetReplaceParams{OrgID: orgID, KekID: v.kekID,
		Wrapped: wrapped}); err != nil {
		return fmt.Errorf("store the keyset of organization %s: %w", orgID, err)
	}
	return nil
}

func (v *Vault) reencrypt(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, old, fresh *keyset.Handle) error {
	secrets, err := v.queries.VaultSecretList(ctx, tx, orgID)
	if err != nil {
		return fmt.Errorf("list the secrets of organization %s: %w", orgID, err)
	}
	for _, s := range secrets {
		bound := binding(orgID, s.ID, s.Version)
		plain, err := decrypt(old, s.Ciphertext, bound)
		if err != nil {
			return fmt.Errorf("decrypt secret %s: %w", s.ID, err)
		}
		sealed, err := encrypt(fresh, plain, bound)
		if err != nil {
			return fmt.Errorf("encrypt secret %s: %w", s.ID, err)
		}
		err = v.queries.VaultSecretRewrite(ctx, tx, db.VaultSecretRewriteParams{OrgID: orgID, ID: s.ID,
			Version: s.Version, Ciphertext: sealed})
		if err != nil {
			return fmt.Errorf("store secret %s: %w", s.ID, err)
		}
	}
	return nil
}
