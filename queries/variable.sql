-- name: VariableSetAdd :one
INSERT INTO flow.variable_set (id, org_id, name, keys, versions, created_by)
VALUES (@id, @org_id, @name, @keys, @versions, @created_by)
RETURNING *;

-- name: VariableSetLimit :one
-- Creations of one organization wait for each other, so that none passes the limit. What refers to the organization
-- does not wait.
SELECT id FROM flow.organization WHERE id = @org_id FOR NO KEY UPDATE;

-- name: VariableSetGet :one
SELECT * FROM flow.variable_set WHERE org_id = @org_id AND id = @id;

-- name: VariableSetHold :one
-- Keeps the set from being deleted until the transaction ends.
SELECT id FROM flow.variable_set WHERE org_id = @org_id AND id = @id FOR KEY SHARE;

-- name: VariableSetList :many
-- In insertion order; `after` is the last id of the page before (all zeros for the first).
SELECT * FROM flow.variable_set WHERE org_id = @org_id AND id > @after ORDER BY id LIMIT @max_rows OFFSET @skip;

-- name: VariableSetCount :one
SELECT count(*) FROM flow.variable_set WHERE org_id = @org_id;

-- name: VariableSetReplace :one
UPDATE flow.variable_set SET name = @name, keys = @keys, versions = @versions, updated_at = flow.clock()
WHERE org_id = @org_id AND id = @id
RETURNING *;

-- name: VariableSetLock :one
SELECT id FROM flow.variable_set WHERE org_id = @org_id AND id = @id FOR UPDATE;

-- name: VariableSetUsed :one
SELECT EXISTS (SELECT FROM flow.definition WHERE org_id = @org_id AND variable_set_id = @id::uuid);

-- name: VariableSetDelete :exec
DELETE FROM flow.variable_set WHERE org_id = @org_id AND id = @id;

-- name: BatchVarsAdd :exec
INSERT INTO flow.batch_vars (batch_id, vars) VALUES (@batch_id, @vars);

-- name: BatchVars :one
SELECT v.vars FROM flow.batch_vars v JOIN flow.batch b ON b.id = v.batch_id WHERE b.org_id = @org_id
    AND v.batch_id = @batch_id;
