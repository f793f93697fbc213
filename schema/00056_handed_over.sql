-- +goose Up
COMMENT ON TABLE flow.due IS 'Everything that must happen at a time, as due rows. A worker process that leases one begins to work on it; other processes, and one that has all hands full, have a River job tell the workers.';
COMMENT ON VIEW ops.river_backlog IS 'River jobs that are not over, by queue and state. A job is only the messenger of a due row, so a lost one costs a lease. Work that a process does itself has none.';

-- +goose Down
COMMENT ON VIEW ops.river_backlog IS 'River jobs that are not over, by queue and state. A job is only the messenger of a due row, so a lost one costs a lease.';
COMMENT ON TABLE flow.due IS 'Everything that must happen at a time, as due rows. A scanner in every worker process turns what is due into River jobs.';
