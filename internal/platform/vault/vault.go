// Package vault owns secrets at rest: one AES-256-GCM keyset per organization, encrypted by the installation's
// key-encryption key, and ciphertexts bound to organization, id and version. It promises that no plaintext is written
// anywhere and that no error carries one. It knows nothing of what a secret is for.
package vault

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// ErrMissing means that the organization has no secret with this id.
var ErrMissing = errors.New("secret not found")

// Vault encrypts and decrypts; it keeps no plaintext and no organization's key. Safe for concurrent use.
type Vault struct {
	kekID   string
	wrapper tink.AEAD
	// wrappers open what is stored, by the fingerprint of the key-encryption key; that of kekID is one of them.
	wrappers map[string]tink.AEAD
	queries  *db.Queries
}

// New returns the vault of an installation. What it stores is under kek; the others open what was stored under them.
func New(kek KEK, others ...KEK) (*Vault, error) {
	v := &Vault{kekID: kek.fingerprint(), wrappers: map[string]tink.AEAD{}, queries: db.New()}
	for _, k := range append([]KEK{kek}, others...) {
		wrapper, err := subtle.NewAESGCM(k.derive("keyset"))
		if err != nil {
			return nil, fmt.Errorf("open the vault: %w", err)
		}
		v.wrappers[k.fingerprint()] = wrapper
	}
	v.wrapper = v.wrappers[v.kekID]
	return v, nil
}

// Put stores plain as the next version of the secret (1 for a new one) and returns that version. It takes part in tx:
// nothing is stored until the caller commits.
func (v *Vault) Put(ctx context.Context, tx pgx.Tx, orgID, secretID uuid.UUID, plain []byte) (int64, error) {
	handle, err := v.ensureKeyset(ctx, tx, orgID)
	if err != nil {
		return 0, err
	}
	version, err := v.queries.VaultSecretVersion(ctx, tx, db.VaultSecretVersionParams{OrgID: orgID, ID: secretID})
	if err != nil && !pg.IsNoRows(err) {
		return 0, fmt.Errorf("read the version of secret %s: %w", secretID, err)
	}
	version++
	sealed, err := encrypt(handle, plain, binding(orgID, secretID, version))
	if err != nil {
		return 0, fmt.Errorf("encrypt secret %s: %w", secretID, err)
	}
	stored, err := v.queries.VaultSecretPut(ctx, tx, db.VaultSecretPutParams{OrgID: orgID, ID: secretID,
		Version: version, Ciphertext: sealed})
	if err != nil {
		return 0, fmt.Errorf("store secret %s: %w", secretID, err)
	}
	if stored != 1 {
		return 0, fmt.Errorf("store secret %s: the id is taken", secretID)
	}
	return version, nil
}

// Get returns the newest version of a secret, or ErrMissing.
func (v *Vault) Get(ctx context.Context, q db.DBTX, orgID, secretID uuid.UUID) ([]byte, int64, error) {
	row, err := v.queries.VaultSecretGet(ctx, q, db.VaultSecretGetParams{OrgID: orgID, ID: secretID})
	if pg.IsNoRows(err) {
		return nil, 0, ErrMissing
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read secret %s: %w", secretID, err)
	}
	handle, err := v.unwrap(orgID, row.KekID, row.Wrapped)
	if err != nil {
		return nil, 0, err
	}
	plain, err := decrypt(handle, row.Ciphertext, binding(orgID, secretID, row.Version))
	if err != nil {
		return nil, 0, fmt.Errorf("decrypt secret %s: %w", secretID, err)
	}
	return plain, row.Version, nil
}

// Delete removes a secret; one that is not there is no error.
func (v *Vault) Delete(ctx context.Context, tx pgx.Tx, orgID, secretID uuid.UUID) error {
	if err := v.queries.VaultSecretDelete(ctx, tx, db.VaultSecretDeleteParams{OrgID: orgID, ID: secretID}); err != nil {
		return fmt.Errorf("delete secret %s: %w", secretID, err)
	}
	return nil
}

// ensureKeyset returns the organization's keyset, locked against rotation, and makes it for the first secret.
func (v *Vault) ensureKeyset(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) (*keyset.Handle, error) {
	row, err := v.queries.VaultKeysetShare(ctx, tx, orgID)
	if pg.IsNoRows(err) {
		if err := v.addKeyset(ctx, tx, orgID); err != nil {
			return nil, err
		}
		// Another transaction may have been first: its keyset counts, so read what is there.
		row, err = v.queries.VaultKeysetShare(ctx, tx, orgID)
	}
	if err != nil {
		return nil, fmt.Errorf("read the keyset of organization %s: %w", orgID, err)
	}
	return v.unwrap(orgID, row.KekID, row.Wrapped)
}

func (v *Vault) addKeyset(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) error {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return fmt.Errorf("make a keyset: %w", err)
	}
	wrapped, err := v.wrap(orgID, handle)
	if err != nil {
		return err
	}
	if err := v.queries.VaultKeysetAdd(ctx, tx, db.VaultKeysetAddParams{OrgID: orgID, KekID: v.kekID,
		Wrapped: wrapped}); err != nil {
		return fmt.Errorf("store the keyset of organization %s: %w", orgID, err)
	}
	return nil
}

func (v *Vault) wrap(orgID uuid.UUID, handle *keyset.Handle) ([]byte, error) {
	var out bytes.Buffer
	if err := handle.WriteWithAssociatedData(keyset.NewBinaryWriter(&out), v.wrapper, orgID[:]); err != nil {
		return nil, fmt.Errorf("encrypt the keyset of organization %s: %w", orgID, err)
	}
	return out.Bytes(), nil
}

func (v *Vault) unwrap(orgID uuid.UUID, kekID string, wrapped []byte) (*keyset.Handle, error) {
	wrapper, err := v.wrapperOf(kekID, fmt.Sprintf("the secrets of organization %s", orgID))
	if err != nil {
		return nil, err
	}
	handle, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(wrapped)), wrapper, orgID[:])
	if err != nil {
		return nil, fmt.Errorf("decrypt the keyset of organization %s: %w", orgID, err)
	}
	return handle, nil
}

// wrapperOf returns what opens a thing that is stored under the key-encryption key with this fingerprint.
func (v *Vault) wrapperOf(kekID, what string) (tink.AEAD, error) {
	wrapper, ok := v.wrappers[kekID]
	if !ok {
		return nil, fmt.Errorf("%s: stored under the key-encryption key with fingerprint %s, this process has %s: "+
			"start it with the same %s or key file, or give it that key as %s",
			what, kekID, v.kekID, KEKVariable, OtherKEKVariable)
	}
	return wrapper, nil
}

// binding is the associated data that ties a ciphertext to its place.
func binding(orgID, secretID uuid.UUID, version int64) []byte {
	return fmt.Appendf(nil, "%s/%s/%d", orgID, secretID, version)
}

func encrypt(handle *keyset.Handle, plain, bound []byte) ([]byte, error) {
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("open the keyset: %w", err)
	}
	return primitive.Encrypt(plain, bound)
}

func decrypt(handle *keyset.Handle, sealed, bound []byte) ([]byte, error) {
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("open the keyset: %w", err)
	}
	return primitive.Decrypt(sealed, bound)
}
