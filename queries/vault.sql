-- name: VaultKeysetAdd :exec
-- The first keyset of an organization; a keyset that is there already stays.
INSERT INTO flow.org_keyset (org_id, kek_id, wrapped) VALUES (@org_id, @kek_id, @wrapped)
    ON CONFLICT (org_id) DO NOTHING;

-- name: VaultKeysetShare :one
-- Keeps the keyset from being rotated until the transaction ends.
SELECT kek_id, wrapped FROM flow.org_keyset WHERE org_id = @org_id FOR SHARE;

-- name: VaultKeysetLock :one
SELECT kek_id, wrapped FROM flow.org_keyset WHERE org_id = @org_id FOR UPDATE;

-- name: VaultKeysetReplace :exec
UPDATE flow.org_keyset SET kek_id = @kek_id, wrapped = @wrapped, rotated_at = flow.clock() WHERE org_id = @org_id;

-- name: VaultSecretVersion :one
SELECT version FROM flow.secret WHERE org_id = @org_id AND id = @id FOR UPDATE;

-- name: VaultSecretPut :execrows
INSERT INTO flow.secret AS s (id, org_id, version, ciphertext) VALUES (@id, @org_id, @version, @ciphertext)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, ciphertext = excluded.ciphertext, updated_at = flow.clock()
WHERE s.org_id = excluded.org_id AND s.version = excluded.version - 1;

-- name: VaultSecretGet :one
-- Ciphertext and keyset of one snapshot, so that a rotation between two reads cannot part them.
SELECT s.version, s.ciphertext, k.kek_id, k.wrapped
FROM flow.secret s JOIN flow.org_keyset k ON k.org_id = s.org_id
WHERE s.org_id = @org_id AND s.id = @id;

-- name: VaultSecretList :many
SELECT id, version, ciphertext FROM flow.secret WHERE org_id = @org_id ORDER BY id FOR UPDATE;

-- name: VaultSecretRewrite :exec
UPDATE flow.secret SET ciphertext = @ciphertext WHERE org_id = @org_id AND id = @id AND version = @version;

-- name: VaultSecretDelete :exec
DELETE FROM flow.secret WHERE org_id = @org_id AND id = @id;

-- name: VaultRootGet :one
SELECT kek_id, wrapped FROM flow.root_key;

-- name: VaultRootLock :one
SELECT kek_id, wrapped FROM flow.root_key FOR UPDATE;

-- name: VaultRootAdd :exec
-- A root key that is there already stays.
INSERT INTO flow.root_key (kek_id, wrapped) VALUES (@kek_id, @wrapped) ON CONFLICT DO NOTHING;

-- name: VaultRootReplace :exec
UPDATE flow.root_key SET kek_id = @kek_id, wrapped = @wrapped;

-- name: VaultKeysetRewrap :exec
UPDATE flow.org_keyset SET kek_id = @kek_id, wrapped = @wrapped WHERE org_id = @org_id;

-- name: VaultKeysetOrgs :many
-- Organizations with a keyset; with other_than those whose keyset is under another key-encryption key than that.
SELECT org_id FROM flow.org_keyset
WHERE org_id > @after AND (sqlc.narg(other_than)::text IS NULL OR kek_id <> sqlc.narg(other_than)::text)
ORDER BY org_id LIMIT 1;
