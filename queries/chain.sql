-- Chains of starts by events and flows, by their root causes.

-- name: ChainsLock :many
-- Locks chains of an organization until the transaction ends, and says what they have and may have. One that is new is
-- written down.
INSERT INTO flow.chain AS c (root_id, org_id, starts, created_at)
SELECT r.id, @org_id, 0, (SELECT flow.clock())
FROM (SELECT DISTINCT unnest(@root_ids::uuid[]) AS id) r ORDER BY r.id
ON CONFLICT (root_id) DO UPDATE SET starts = c.starts
RETURNING c.root_id, c.starts, c.refused, (SELECT o.start_budget FROM flow.organization o
    WHERE o.id = c.org_id)::int AS budget;

-- name: ChainsNote :exec
UPDATE flow.chain c SET starts = n.starts, refused = n.refused
FROM (SELECT unnest(@root_ids::uuid[]) AS root_id, unnest(@starts::int[]) AS starts,
    unnest(@refused::int[]) AS refused) n
WHERE c.root_id = n.root_id;

-- name: HousekeepChains :execrows
DELETE FROM flow.chain c USING (
    SELECT o.root_id FROM flow.chain o WHERE o.created_at < (SELECT flow.clock()) - interval '90 days'
    ORDER BY o.created_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
) old
WHERE c.root_id = old.root_id;
