-- Most batches have one slice, whose records go into their first call together: the part that is all of it stands here,
-- with the call that takes it, because a row of flow.part with its index entries would cost such a batch as much as
-- anything else. Whoever does more with it than to claim or to settle it as a whole writes it to flow.part first. The
-- definition is here so that what waits for an account is summed up by task without a look at each batch, and
-- delayed_until so that projections look for calls that wait for their next attempt only in queues that have some.
CREATE TABLE flow.lane_batch (
    batch_id uuid NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    org_id uuid NOT NULL,
    definition_id uuid NOT NULL,
    version int NOT NULL,
    domain text NOT NULL,
    bucket text NOT NULL,
    lane flow.lane NOT NULL,
    high boolean NOT NULL DEFAULT false,
    open boolean NOT NULL DEFAULT true,
    paused boolean NOT NULL DEFAULT false,
    ready_parts int NOT NULL DEFAULT 0 CHECK (ready_parts >= 0),
    ready_records bigint NOT NULL DEFAULT 0 CHECK (ready_records >= 0),
    delayed_until timestamptz,
    allowance bigint CHECK (allowance >= 0),
    lapses_at timestamptz,
    part_id bigint,
    call_id uuid,
    listed boolean NOT NULL GENERATED ALWAYS AS (ready_parts > 0 OR part_id IS NOT NULL) STORED,
    PRIMARY KEY (batch_id, step_no, task_no),
    CHECK (call_id IS NULL OR part_id IS NOT NULL),
    CHECK ((allowance IS NULL) = (lapses_at IS NULL))
) WITH (fillfactor = 50);
-- The queues of a budget are found by organization, then by lane. Those of a paused batch stay where they are in the
-- order, and are passed over by the index. So does one whose only part was claimed: it is gone soon, and a claim that
-- changes nothing that is indexed writes one version of the row and no entry of an index.
CREATE INDEX lane_batch_by_org ON flow.lane_batch (domain, bucket, org_id, lane, paused, high DESC, batch_id) WHERE open
    AND listed;
-- Queues to which records may still come, for projections. The only queue of a small batch is hardly ever among them.
CREATE INDEX lane_batch_empty ON flow.lane_batch (domain, batch_id) WHERE open AND NOT listed;
COMMENT ON TABLE flow.lane_batch IS
    'The queue of one call task of one batch within a lane, until the batch comes to its end. Holds, cancels and '
    'priorities touch these few rows, never slices.';
COMMENT ON COLUMN flow.lane_batch.batch_id IS 'The batch whose records wait.';
COMMENT ON COLUMN flow.lane_batch.step_no IS 'The step of the task.';
COMMENT ON COLUMN flow.lane_batch.task_no IS 'Place of the task in its step.';
COMMENT ON COLUMN flow.lane_batch.org_id IS 'The organization of the batch.';
COMMENT ON COLUMN flow.lane_batch.definition_id IS
    'Whose version the batch follows: with it projections find the plan without reading the batch.';
COMMENT ON COLUMN flow.lane_batch.version IS 'The version of the definition that the batch runs.';
COMMENT ON COLUMN flow.lane_batch.domain IS 'The Domain whose budget the calls spend.';
COMMENT ON COLUMN flow.lane_batch.bucket IS
    'The bucket in whose queue the calls wait: the first that their action spends.';
COMMENT ON COLUMN flow.lane_batch.lane IS 'The lane in which they wait.';
COMMENT ON COLUMN flow.lane_batch.high IS 'True for priority high: before others of the lane.';
COMMENT ON COLUMN flow.lane_batch.open IS
    'True while it may be claimed; false once the batch was cancelled or stopped.';
COMMENT ON COLUMN flow.lane_batch.paused IS 'True while the batch is paused: nothing of the queue is claimed.';
COMMENT ON COLUMN flow.lane_batch.ready_parts IS 'Parts that wait for a call, those with a later ready_at included.';
COMMENT ON COLUMN flow.lane_batch.ready_records IS 'Records in these parts.';
COMMENT ON COLUMN flow.lane_batch.delayed_until IS
    'Until when parts of the queue may wait for their next attempt: the latest ready_at that any of them ever had; '
    'null where none had one.';
COMMENT ON COLUMN flow.lane_batch.allowance IS
    'How many more records may be claimed before lapses_at; null where the batch is not paced.';
COMMENT ON COLUMN flow.lane_batch.lapses_at IS
    'From when on nothing may be claimed until the next tick; null where the batch is not paced.';
COMMENT ON COLUMN flow.lane_batch.part_id IS
    'The part that is all of the batch''s only slice, in its first attempt, while it has no row in flow.part; null '
    'otherwise.';
COMMENT ON COLUMN flow.lane_batch.call_id IS 'The call that covers that part; null while it waits.';
COMMENT ON COLUMN flow.lane_batch.listed IS
    'Whether the index of queues has it, while it is open: it has parts that wait, or is gone once its only one is '
    'settled.';

CREATE TABLE flow.call (
    id uuid PRIMARY KEY,
    org_id uuid NOT NULL,
    domain text NOT NULL,
    bucket text NOT NULL,
    lane flow.lane NOT NULL,
    action_id text NOT NULL,
    credential_id uuid,
    state text NOT NULL CHECK (state IN ('intent', 'unknown', 'awaiting', 'settled', 'refused', 'unresolved')),
    owner text NOT NULL,
    attempt int NOT NULL DEFAULT 1,
    records int NOT NULL,
    resolved int NOT NULL DEFAULT 0,
    digest text NOT NULL,
    first_key text,
    last_key text,
    params text NOT NULL,
    outcome_check text NOT NULL,
    exclusive_key text,
    reference text,
    claimed_at timestamptz NOT NULL,
    send_before timestamptz NOT NULL,
    answered_at timestamptz,
    next_check_at timestamptz,
    checks int NOT NULL DEFAULT 0,
    counts_in jsonb NOT NULL,
    costs jsonb,
    note text,
    failure text,
    asked text,
    batch_id uuid,
    key_sums bytea
) WITH (fillfactor = 70);
CREATE INDEX call_open ON flow.call (domain, bucket, send_before) WHERE state IN ('intent', 'unknown', 'awaiting');
-- One that nobody meters is entered once it is over; most of those are gone then.
CREATE INDEX call_recent ON flow.call (domain, bucket, claimed_at) WHERE counts_in <> '{}' OR state <> 'intent';
CREATE UNIQUE INDEX call_reference ON flow.call (domain, bucket, reference) WHERE reference IS NOT NULL;
-- A call has its exclusive key for as long as it is open. That the index does not speak of the state leaves it out of
-- the way of all the calls that have no such key.
CREATE UNIQUE INDEX call_exclusive ON flow.call (domain, exclusive_key) WHERE exclusive_key IS NOT NULL;
-- Calls that wait for a person are few among all calls; nothing else finds them.
CREATE INDEX call_unresolved ON flow.call (claimed_at) WHERE state = 'unresolved';
-- A reading of the provider's counters may miss calls that were answered after the time that it holds, however long
-- before they were claimed. Quick ones are found by when they were claimed.
CREATE INDEX call_slow ON flow.call (domain, bucket, answered_at) WHERE answered_at - claimed_at > interval '1 second';
COMMENT ON TABLE flow.call IS
    'One request to a provider. Its row is an intent, written before it is sent; it is open until its outcome is '
    'known. One that succeeded, and is in no window of a budget and in no doubt, goes with its settlement: what is to '
    'be seen of it stands in flow.exchange. A question of the service''s own about an account that the provider counts '
    'has a row, too, written when it was answered.';
COMMENT ON COLUMN flow.call.id IS 'Names the call in logs and in ops.unknown_outcome.';
COMMENT ON COLUMN flow.call.org_id IS 'The organization whose records it carries.';
COMMENT ON COLUMN flow.call.domain IS 'The Domain of its budget.';
COMMENT ON COLUMN flow.call.bucket IS 'The bucket in whose queue it waited, the first that it spends.';
COMMENT ON COLUMN flow.call.lane IS 'The lane it was claimed from.';
COMMENT ON COLUMN flow.call.action_id IS
    'What is asked of the provider, as the catalog names it; empty for a question of the service''s own.';
COMMENT ON COLUMN flow.call.credential_id IS 'The credential that spends it; null for none.';
COMMENT ON COLUMN flow.call.state IS
    'intent: may be under way; unknown: nobody knows whether it arrived; awaiting: accepted, result later; settled, '
    'refused: over; unresolved: only a person can tell.';
COMMENT ON COLUMN flow.call.owner IS 'The process that wrote it down.';
COMMENT ON COLUMN flow.call.attempt IS 'Which attempt it is for its records, from 1.';
COMMENT ON COLUMN flow.call.records IS 'How many records it carries; 0 for lookups and polls.';
COMMENT ON COLUMN flow.call.resolved IS
    'How many of its records are settled, by people or by an answer that left others open; also tells settlements that '
    'its parts have changed.';
COMMENT ON COLUMN flow.call.digest IS
    'Digest over the rows as sent: a lookup tells by it whether the provider has them. Empty, as the keys and params '
    'are, where no lookup will ask.';
COMMENT ON COLUMN flow.call.first_key IS 'Key of the first record as sent, for the lookup; customer data.';
COMMENT ON COLUMN flow.call.last_key IS 'Key of the last record as sent, for the lookup; customer data.';
COMMENT ON COLUMN flow.call.params IS
    'The settings of the task as rendered for this call, without the rows, for the lookup; customer data.';
COMMENT ON COLUMN flow.call.outcome_check IS
    'How its outcome is found out where no answer came: safe and keyed are repeated, lookup asks the provider, none '
    'needs a person, at_least_once is repeated because the author chose so.';
COMMENT ON COLUMN flow.call.exclusive_key IS
    'While it is open, no other call of the Domain with this key goes out; null for none.';
COMMENT ON COLUMN flow.call.reference IS
    'The provider''s own name for what it accepted; settles one call only. Null while unknown.';
COMMENT ON COLUMN flow.call.claimed_at IS
    'When it was written down and debited; of one that may have been sent in the time that a restore lost, when that '
    'time began.';
COMMENT ON COLUMN flow.call.send_before IS
    'After this nothing of it is sent any more: the guard compares it with the clock before each write. Of one that '
    'may have been sent in the time that a restore lost, when that time ended.';
COMMENT ON COLUMN flow.call.answered_at IS 'When it was last settled or doubted; null before.';
COMMENT ON COLUMN flow.call.next_check_at IS 'When the provider is asked about it next; null where nobody asks.';
COMMENT ON COLUMN flow.call.checks IS 'How often the provider was asked about it.';
COMMENT ON COLUMN flow.call.costs IS
    'What it counts for in the windows of a bucket, by bucket, where that is not 1; null where it is 1 in all. What it '
    'may cost until it is answered, then what the answer says.';
COMMENT ON COLUMN flow.call.counts_in IS
    'The windows that it counts in: start times in Unix seconds by window length, numbers of cells by length and r for '
    'windows that roll; for another bucket that it spends too by length and bucket, as in 60 query.';
COMMENT ON COLUMN flow.call.asked IS
    'What came of the latest question about it, in words, where that told nothing of its outcome; null for none. '
    'Secrets are masked; customer data.';
COMMENT ON COLUMN flow.call.batch_id IS
    'The batch of its records, where one part has all of them: that part may stand in the batch''s queue. Null for '
    'several parts, or none.';
COMMENT ON COLUMN flow.call.key_sums IS
    'Of what each row has as its key, in their order, the first 8 bytes of its SHA-256: the result names rows by their '
    'keys. Null where it does not, and once the call is over.';
COMMENT ON COLUMN flow.call.failure IS
    'What went wrong, as the error of its records tells it (JSON: code, message, provider_code, provider_message); '
    'null where nothing did. Secrets are masked; customer data.';

-- Rows are only inserted, those of calls with their settlement, and deleted when they are old. Of the questions about a
-- call few are kept: one that is asked for its result every second for a day must not fill the table. The first of the
-- batches stands in the row itself: most calls have records of one.
CREATE TABLE flow.exchange (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    batch_id uuid NOT NULL,
    credential_id uuid,
    queued_at timestamptz,
    claimed_at timestamptz NOT NULL,
    sent_at timestamptz,
    answered_at timestamptz,
    lane flow.lane NOT NULL,
    attempt int NOT NULL,
    records int NOT NULL,
    status smallint,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    domain text NOT NULL,
    action_id text NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('success', 'pending', 'refused', 'retry_later', 'not_arrived', 'unknown')),
    failed boolean NOT NULL GENERATED ALWAYS AS (outcome NOT IN ('success', 'pending')
        OR coalesce(status, 200) NOT BETWEEN 200 AND 299) STORED,
    code text,
    provider_code text,
    positions int8multirange,
    more_batches uuid[],
    about uuid,
    purpose text CHECK (purpose IN ('lookup', 'poll')),
    detail bytea NOT NULL,
    PRIMARY KEY (org_id, id),
    CHECK ((about IS NULL) = (purpose IS NULL))
);
ALTER TABLE flow.exchange ALTER COLUMN detail SET STORAGE EXTERNAL;
-- Calls that failed are looked for, and few among all, as questions are. Those of a Domain that did not are found among
-- the newest.
CREATE INDEX exchange_failed ON flow.exchange (org_id, id) WHERE failed;
CREATE INDEX exchange_domain_failed ON flow.exchange (org_id, domain, id) WHERE failed;
CREATE INDEX exchange_by_batch ON flow.exchange (batch_id, id);
CREATE INDEX exchange_asked ON flow.exchange (org_id, id) WHERE about IS NOT NULL;
CREATE INDEX exchange_about ON flow.exchange (org_id, about, id) WHERE about IS NOT NULL;
CREATE INDEX exchange_by_batch_failed ON flow.exchange (batch_id, id) WHERE failed;
COMMENT ON TABLE flow.exchange IS
    'What a call, or a question about one, sent and what came back, for people to look at. Customer data, without '
    'secrets.';
COMMENT ON COLUMN flow.exchange.org_id IS 'The organization whose records it carried.';
COMMENT ON COLUMN flow.exchange.id IS 'The call. Ids of later calls are greater.';
COMMENT ON COLUMN flow.exchange.domain IS 'The Domain of its budget.';
COMMENT ON COLUMN flow.exchange.action_id IS 'What was asked of the provider, as the catalog names it.';
COMMENT ON COLUMN flow.exchange.credential_id IS 'The credential that it used; null for none.';
COMMENT ON COLUMN flow.exchange.lane IS 'The lane it was claimed from.';
COMMENT ON COLUMN flow.exchange.attempt IS 'Which attempt it was for its records, from 1.';
COMMENT ON COLUMN flow.exchange.records IS 'How many records it carried; 0 for a question.';
COMMENT ON COLUMN flow.exchange.batch_id IS 'The batch of the first of these records.';
COMMENT ON COLUMN flow.exchange.step_no IS 'The step of the task of that batch that called.';
COMMENT ON COLUMN flow.exchange.task_no IS 'Place of the task in its step.';
COMMENT ON COLUMN flow.exchange.positions IS
    'Places of the records in that batch; null for the first alone, as most calls have it.';
COMMENT ON COLUMN flow.exchange.more_batches IS
    'The batches of the other records, each with a row in flow.exchange_batch; null for none.';
COMMENT ON COLUMN flow.exchange.about IS
    'The call that was asked about, whose records stand here, too; null for a call.';
COMMENT ON COLUMN flow.exchange.purpose IS
    'lookup: what became of that call was asked; poll: its result was; null for a call.';
COMMENT ON COLUMN flow.exchange.outcome IS
    'What the answer proved, when it came; what was found out later is the state of the call.';
COMMENT ON COLUMN flow.exchange.status IS 'The HTTP status; null where no answer came.';
COMMENT ON COLUMN flow.exchange.code IS 'The code of the error that its records got; null for a success.';
COMMENT ON COLUMN flow.exchange.provider_code IS 'The provider''s own code; null where it told none.';
COMMENT ON COLUMN flow.exchange.queued_at IS
    'Since when the first of these records could be claimed; null for since its batch began, as most calls have it. Of '
    'a question, when it was due.';
COMMENT ON COLUMN flow.exchange.claimed_at IS 'When it was written down and debited.';
COMMENT ON COLUMN flow.exchange.sent_at IS 'When its round trip began; null where that is not known.';
COMMENT ON COLUMN flow.exchange.answered_at IS 'When its round trip was over; null where that is not known.';
COMMENT ON COLUMN flow.exchange.failed IS 'It was no success, or its status would not say so.';
COMMENT ON COLUMN flow.exchange.detail IS 'The rest, as compressed JSON; package dispatch owns the format.';

CREATE TABLE flow.exchange_batch (
    batch_id uuid NOT NULL,
    call_id uuid NOT NULL,
    step_no smallint NOT NULL,
    task_no smallint NOT NULL,
    positions int8multirange NOT NULL,
    failed boolean NOT NULL,
    PRIMARY KEY (batch_id, call_id)
);
CREATE INDEX exchange_batch_failed ON flow.exchange_batch (batch_id, call_id) WHERE failed;
COMMENT ON TABLE flow.exchange_batch IS
    'Which records of a batch an exchange was for, besides those of its first batch.';
COMMENT ON COLUMN flow.exchange_batch.batch_id IS 'Whose records they were.';
COMMENT ON COLUMN flow.exchange_batch.call_id IS 'What carried them: a row of flow.exchange has this id.';
COMMENT ON COLUMN flow.exchange_batch.step_no IS 'The step of the task that called.';
COMMENT ON COLUMN flow.exchange_batch.task_no IS 'Place of the task in its step.';
COMMENT ON COLUMN flow.exchange_batch.positions IS 'Places of the records in the batch.';
COMMENT ON COLUMN flow.exchange_batch.failed IS 'As of the exchange.';
COMMENT ON COLUMN flow.call.note IS
    'Why it is in its state, as a word of the program: timeout, no_answer, rate_limited, ...';

CREATE TABLE flow.resolution (
    call_id uuid NOT NULL,
    call_row int NOT NULL,
    org_id uuid NOT NULL,
    batch_id uuid NOT NULL,
    position bigint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('accepted', 'rejected', 'requeue')),
    note text,
    account_id uuid,
    created_at timestamptz NOT NULL,
    contradiction text,
    PRIMARY KEY (call_id, call_row)
);
CREATE INDEX resolution_by_batch ON flow.resolution (batch_id);
COMMENT ON TABLE flow.resolution IS
    'What a person said of a record whose call''s outcome nobody knew. Goes with the batch of the record.';
COMMENT ON COLUMN flow.resolution.call_id IS 'The call in doubt.';
COMMENT ON COLUMN flow.resolution.call_row IS 'Place of the record in the call, from 0.';
COMMENT ON COLUMN flow.resolution.org_id IS 'The organization of the batch.';
COMMENT ON COLUMN flow.resolution.batch_id IS 'The batch of the record.';
COMMENT ON COLUMN flow.resolution.position IS 'Place of the record in its batch.';
COMMENT ON COLUMN flow.resolution.outcome IS 'accepted, rejected, or requeue: it was not carried out and goes again.';
COMMENT ON COLUMN flow.resolution.note IS 'What the person said besides; null for nothing.';
COMMENT ON COLUMN flow.resolution.account_id IS 'Who said it.';
COMMENT ON COLUMN flow.resolution.created_at IS 'When it was said.';
COMMENT ON COLUMN flow.resolution.contradiction IS
    'What the provider said later, where that differs: accepted, rejected, not_arrived. Null for none.';

-- The claim of calls counts them, so that every row that flow.call ever had is in here.
CREATE TABLE flow.usage (
    org_id uuid NOT NULL REFERENCES flow.organization (id),
    day date NOT NULL,
    definition_id uuid NOT NULL,
    credential_id uuid NOT NULL,
    action_id text NOT NULL,
    calls bigint NOT NULL CHECK (calls >= 0),
    records bigint NOT NULL CHECK (records >= 0),
    PRIMARY KEY (org_id, day, definition_id, credential_id, action_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE flow.usage IS
    'Calls and the records in them by organization, UTC day, definition, credential and action. Claims count; rows '
    'outlive their calls.';
COMMENT ON COLUMN flow.usage.org_id IS 'The organization that called.';
COMMENT ON COLUMN flow.usage.day IS 'The UTC day of the claim.';
COMMENT ON COLUMN flow.usage.definition_id IS
    'The definition whose batch called; all zeros for calls that carry no record.';
COMMENT ON COLUMN flow.usage.credential_id IS 'The credential that calls carried; all zeros for none.';
COMMENT ON COLUMN flow.usage.action_id IS 'What was asked of the provider, as the catalog names it.';
COMMENT ON COLUMN flow.usage.calls IS 'How many calls were claimed.';
COMMENT ON COLUMN flow.usage.records IS 'How many records these carried.';
