#!/bin/sh
# What a new Postgres needs beside its owner: the login of the service, which owns nothing, with the settings that it
# must have behind a pooler, and one for Grafana, which may look at the views for operators.
set -eu
app=$(cat /run/secrets/app-password) ops=$(cat /run/secrets/ops-password)
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" -v app="$app" -v ops="$ops" <<'SQL'
CREATE ROLE flowlane_runtime;
CREATE ROLE flowlane_ops;
CREATE ROLE flowlane_app LOGIN PASSWORD :'app' IN ROLE flowlane_runtime;
CREATE ROLE grafana LOGIN PASSWORD :'ops' IN ROLE flowlane_ops;
ALTER ROLE flowlane_app SET timezone = 'UTC';
ALTER ROLE flowlane_app SET enable_seqscan = off;
ALTER ROLE flowlane_app SET enable_hashjoin = off;
ALTER ROLE flowlane_app SET enable_mergejoin = off;
ALTER ROLE flowlane_app SET jit = off;
ALTER ROLE flowlane_app SET idle_in_transaction_session_timeout = '10s';
SQL
