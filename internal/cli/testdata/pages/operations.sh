# What the page takes as given: who asks, and something of everything that it speaks of.
eval "$(flowlane env)"
H="X-API-Key: $FLOWLANE_API_KEY"
OPS=${DATABASE_URL/flowlane:*@/anna:choose-another@}
RESTORED_URL=${DATABASE_URL/\/flowlane\?//restored?}
BACKUP_TIME=$(date -u +%FT%TZ)
PLATFORM=dialer
DOMAIN=$(flowlane credentials get dialer --json | jq -r .tenancy_id)
LEAVING=$(flowlane org create --name Leaving --json | jq -r .id)
KEY=$(flowlane keys create --name lost --json | jq -r .id)

# Calls of which nobody knows what became, and a batch that waits.
cat > dial.yaml <<'YAML'
name: dial
status: active
steps:
  - id: only
    tasks:
      - {id: dial, action_id: dialer__api__dial, credential_id: dialer, params: {number: "{{ input.number }}", campaign: spring}}
YAML
flowlane flows apply dial.yaml
curl -s "$FLOWLANE_SIM_URL/_control/faults" -d '{"fault": "cut_after_accept", "operation": "dial", "count": 3}'
BATCH=$(flowlane flows trigger dial --json --records '[{"number": "+15550100"}, {"number": "+15550101"}, {"number": "+15550102"}]' | jq -r .batch_id)
until [ "$(flowlane batches get "$BATCH" --json | jq .job_counts.unresolved)" = 3 ]; do sleep 0.2; done
JOB=$BATCH.0

# A session that is open for too long, and a slot that nobody uses.
psql "$DATABASE_URL" -c 'SELECT pg_sleep(3600)' >/dev/null 2>&1 &
until PID=$(psql "$DATABASE_URL" -At -c "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)'") && [ -n "$PID" ]; do sleep 0.1; done
psql "$DATABASE_URL" -c "SELECT pg_create_physical_replication_slot('unused')"
