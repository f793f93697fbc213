-- name: TenantDomainKeep :execrows
-- What the provider said about an account, newest wins. No row means that the id belongs to another account.
INSERT INTO flow.domain AS d (tenancy_id, platform_id, account_number, account_name, time_zone, identified_at)
VALUES (@tenancy_id, @platform_id, @account_number, @account_name, @time_zone, flow.clock())
ON CONFLICT (tenancy_id) DO UPDATE
SET account_name = excluded.account_name, time_zone = excluded.time_zone, identified_at = excluded.identified_at
WHERE d.platform_id = excluded.platform_id AND d.account_number = excluded.account_number;
