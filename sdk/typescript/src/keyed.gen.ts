// The operations that take an Idempotency-Key; written by openapi-ts.config.ts.
export const keyed = new Set([
  'POST /catalog/imports',
  'POST /credentials',
  'POST /tenants',
  'POST /flows/definitions',
  'POST /flows/definitions/{definition_id}/trigger',
  'POST /flows/variables',
  'POST /flows/schedules',
  'POST /flows/schedules/{schedule_id}/run',
  'POST /flows/event-subscriptions',
  'POST /flows/batches/{batch_id}/pause',
  'POST /flows/batches/{batch_id}/retry',
  'POST /data/record-sets',
  'POST /data/stores',
  'POST /data/stores/{store}/records',
  'POST /platforms/{platform}/domains/{tenancy_id}/pause',
  'POST /admin/dispatch/pause',
]);
