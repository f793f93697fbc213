package vault

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// rootBinding is the associated data of the root key.
var rootBinding = []byte("root") //nolint:gochecknoglobals // a constant

// Root is the key from which an installation derives the keys of its hashes and signatures. It prints as [redacted].
type Root struct{ secret }

// Root returns the installation's root key, and makes it when it is missing.
func (v *Vault) Root(ctx context.Context, q db.DBTX) (Root, error) {
	row, err := v.queries.VaultRootGet(ctx, q)
	if pg.IsNoRows(err) {
		if err := v.addRoot(ctx, q); err != nil {
			return Root{}, err
		}
		// Another process may have been first: its key counts.
		row, err = v.queries.VaultRootGet(ctx, q)
	}
	if err != nil {
		return Root{}, fmt.Errorf("read the root key: %w", err)
	}
	return v.openRoot(row.KekID, row.Wrapped)
}

// addRoot stores a random key.
func (v *Vault) addRoot(ctx context.Context, q db.DBTX) error {
	var root [keyBytes]byte
	_, _ = rand.Read(root[:]) // never fails
	wrapped, err := v.wrapper.Encrypt(root[:], rootBinding)
	if err != nil {
		return fmt.Errorf("encrypt the root key: %w", err)
	}
	if err := v.queries.VaultRootAdd(ctx, q, db.VaultRootAddParams{KekID: v.kekID, Wrapped: wrapped}); err != nil {
		return fmt.Errorf("store the root key: %w", err)
	}
	return nil
}

func (v *Vault) openRoot(kekID string, wrapped []byte) (Root, error) {
	wrapper, err := v.wrapperOf(kekID, "the root key of this installation")
	if err != nil {
		return Root{}, err
	}
	plain, err := wrapper.Decrypt(wrapped, rootBinding)
	if err != nil || len(plain) != keyBytes {
		return Root{}, fmt.Errorf("decrypt the root key: %w", err)
	}
	return Root{secret{[keyBytes]byte(plain)}}, nil
}

// Derive returns 32 bytes for one purpose, for example "api-key": always the same in one installation.
func (r Root) Derive(purpose string) []byte { return r.derive("use/" + purpose) }

// secret is 32 bytes that other keys come from.
type secret struct{ bytes [keyBytes]byte }

// String hides the key from logs and errors.
func (secret) String() string { return "[redacted]" }

// GoString hides the key from %#v.
func (secret) GoString() string { return "[redacted]" }

// MarshalText hides the key from JSON and structured logs.
func (secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// derive returns 32 bytes for one purpose; keys of different purposes tell nothing of each other.
func (s secret) derive(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, s.bytes[:], nil, "flowlane/v1/"+purpose, keyBytes)
	if err != nil {
		panic("vault: HKDF refused 32 bytes: " + err.Error()) // only for absurd lengths
	}
	return key
}
