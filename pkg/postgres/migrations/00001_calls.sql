-- The tables of a fleet, in the schema throttler. The columns of calls, flights, keys, untold,
-- quota and audit are those of the store in a file (package columns): instants are microseconds
-- since the Unix epoch, 0 for none; ended_at, back and those of spent are on the clock of the
-- process that wrote them; each sum is over its row. Texts that may have any byte are bytea.

-- +goose Up

-- The term: one replica at a time has the calls. Its epoch grows with each owner. A replica
-- whose beat has not changed for longer than lease_ms may be followed by another one.
CREATE TABLE throttler.lease (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	epoch    bigint NOT NULL DEFAULT 0,
	owner    text NOT NULL DEFAULT '', -- of the replica; empty: its term has ended, and nothing is in flight
	name     text NOT NULL DEFAULT '', -- of the replica, for people
	beat     bigint NOT NULL DEFAULT 0,
	lease_ms bigint NOT NULL DEFAULT 0,
	exited   boolean NOT NULL DEFAULT false, -- an operator has stated that the owner's process has ended
	next     text NOT NULL DEFAULT '', -- name of the replica that is to follow; * for any other one
	offered_at timestamptz -- at which next was set
);
INSERT INTO throttler.lease DEFAULT VALUES;

-- The registry: a row for each process life. Nothing is decided by it but which replicas are reached, and which ones
-- reach others.
CREATE TABLE throttler.replicas (
	id        text PRIMARY KEY,
	name      text NOT NULL,
	address   text NOT NULL, -- host:port for other replicas; empty for none
	pin       text NOT NULL, -- SHA-256 of the public key that it shows there, in hex
	version   text NOT NULL,
	config    text NOT NULL, -- hash of its limits
	joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The fence: each transaction of an owner begins with a change of this row, and is none if the
-- epoch is another one. number grows with each transaction, so that it can be asked whether one
-- whose answer was lost has been committed. mark is the time of the last one. generation grows
-- with each recovery and each replacement of quota; folded is the one up to which quota has all
-- permits that may be out. lost: commits that were confirmed are gone, so what waits may have been sent.
CREATE TABLE throttler.fence (
	one        boolean PRIMARY KEY DEFAULT true CHECK (one),
	epoch      bigint NOT NULL DEFAULT 0,
	number     bigint NOT NULL DEFAULT 0,
	generation bigint NOT NULL DEFAULT 0,
	folded     bigint NOT NULL DEFAULT 0,
	mark       text NOT NULL DEFAULT '',
	lost       boolean NOT NULL DEFAULT false
) WITH (fillfactor = 10);
INSERT INTO throttler.fence DEFAULT VALUES;

-- advance is the fence: it counts a transaction, if the last one was the one with the number n of the term e; else it
-- raises TH001, and nothing that follows in the transaction takes effect.
-- +goose StatementBegin
CREATE FUNCTION throttler.advance(e bigint, n bigint, m text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE throttler.fence SET number = n + 1, mark = coalesce(m, mark) WHERE epoch = e AND number = n;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the fence of the term is another one' USING ERRCODE = 'TH001';
	END IF;
END $$;
-- +goose StatementEnd

-- Facts about the whole store: oldest (the first version of the schema whose programs can use this one; a migration with
-- which older programs cannot work raises it); seal (a text that only the key of a sealed store decrypts).
CREATE TABLE throttler.meta (
	name  text PRIMARY KEY,
	value bytea NOT NULL
);
INSERT INTO throttler.meta VALUES ('oldest', '1');

CREATE TABLE throttler.calls (
	seq            bigint PRIMARY KEY,
	id             text COLLATE "C" NOT NULL UNIQUE,
	upstream       text NOT NULL,
	lane           bigint NOT NULL,
	state          text NOT NULL,
	rank           bigint NOT NULL,
	async          boolean NOT NULL,
	callback       text NOT NULL,
	resolves       text NOT NULL,
	epoch          bigint NOT NULL, -- the generation in which it was accepted, or sent last
	bytes          bigint NOT NULL,
	accepted_at    bigint NOT NULL,
	not_before     bigint NOT NULL,
	due            bigint NOT NULL,
	deadline       bigint NOT NULL,
	wake           bigint NOT NULL,
	ended_at       bigint NOT NULL,
	attempts       text NOT NULL,
	spent          text NOT NULL,
	sum            bigint NOT NULL,
	facts          text NOT NULL,
	terms          bigint[] NOT NULL, -- hashes of the texts by which it is found
	method         text,
	target         bytea,
	headers        text,
	body           bytea,
	sealed         bytea,
	request_sum    bigint,
	status         bigint,
	answer_headers text,
	answer         bytea,
	truncated      boolean,
	answer_sealed  bytea,
	answer_sum     bigint
) WITH (fillfactor = 80);
CREATE INDEX calls_waiting ON throttler.calls (upstream, rank, seq) INCLUDE (lane, due, bytes) WHERE state = 'waiting';
CREATE INDEX calls_waking ON throttler.calls (wake, seq) WHERE state = 'waiting' AND wake <> 0;
CREATE INDEX calls_unsettled ON throttler.calls (id) WHERE state = 'unknown';
CREATE INDEX calls_settled ON throttler.calls (state, id) WHERE state IN ('failed', 'expired', 'exhausted', 'cancelled');
CREATE INDEX calls_ended ON throttler.calls (ended_at) WHERE ended_at > 0;
CREATE INDEX calls_terms ON throttler.calls USING gin (terms) WITH (fastupdate = on);

-- Attempts in flight, as of their intents.
CREATE TABLE throttler.flights (
	seq      bigint PRIMARY KEY,
	async    boolean NOT NULL,
	epoch    bigint NOT NULL,
	due      bigint NOT NULL,
	deadline bigint NOT NULL,
	attempts text NOT NULL,
	spent    text NOT NULL,
	sum      bigint NOT NULL
);

-- Calls with their attempts in flight.
CREATE VIEW throttler.current AS SELECT c.seq, c.id, c.upstream, c.lane, CASE WHEN f.seq IS NULL THEN c.state ELSE 'sending' END AS state,
	c.rank, coalesce(f.async, c.async) AS async, c.callback, c.resolves, coalesce(f.epoch, c.epoch) AS epoch, c.bytes, c.accepted_at,
	c.not_before, coalesce(f.due, c.due) AS due, coalesce(f.deadline, c.deadline) AS deadline, c.wake, c.ended_at,
	coalesce(f.attempts, c.attempts) AS attempts, coalesce(f.spent, c.spent) AS spent, coalesce(f.sum, c.sum) AS sum, c.facts
	FROM throttler.calls c LEFT JOIN throttler.flights f ON f.seq = c.seq;

-- Idempotency keys and identities, as hashes; ended_by is null for a key.
CREATE TABLE throttler.keys (
	key         bytea PRIMARY KEY,
	fingerprint text NOT NULL,
	seq         bigint NOT NULL,
	until       bigint NOT NULL,
	ended_by    text
);
CREATE INDEX keys_until ON throttler.keys (until);

-- Ends to be told: by a webhook if tell_at is null, else to the handler of the program.
CREATE TABLE throttler.untold (
	notice   text COLLATE "C" PRIMARY KEY,
	seq      bigint NOT NULL,
	tell_at  bigint,
	failures bigint NOT NULL DEFAULT 0
);
CREATE INDEX untold_at ON throttler.untold (tell_at, notice) WHERE tell_at IS NOT NULL;
CREATE INDEX untold_seq ON throttler.untold (seq);

-- Permits that may be out and belong to no call, and pauses.
CREATE TABLE throttler.quota (
	id       bigint PRIMARY KEY,
	upstream text NOT NULL,
	name     text NOT NULL,
	key      bytea NOT NULL,
	every    boolean NOT NULL,
	permits  bigint NOT NULL,
	back     bigint NOT NULL,
	paused   boolean NOT NULL,
	sum      bigint NOT NULL,
	since    bigint NOT NULL,
	reason   bytea NOT NULL,
	who      bytea NOT NULL
);
CREATE INDEX quota_back ON throttler.quota (back) WHERE back > 0;

CREATE TABLE throttler.audit (
	seq      bigint PRIMARY KEY,
	at       bigint NOT NULL,
	actor    bytea NOT NULL,
	role     text NOT NULL,
	via      text NOT NULL,
	action   text NOT NULL,
	upstream bytea NOT NULL,
	call     bytea NOT NULL,
	name     bytea NOT NULL,
	key      bytea NOT NULL,
	before   bytea NOT NULL,
	after    bytea NOT NULL,
	reason   bytea NOT NULL,
	sum      bigint NOT NULL
);
CREATE INDEX audit_call ON throttler.audit (call, seq) WHERE call <> '';
CREATE INDEX audit_actor ON throttler.audit (actor, seq);
CREATE INDEX audit_action ON throttler.audit (action, seq);
CREATE INDEX audit_at ON throttler.audit (at);

-- Calls that programs hand over in transactions of their own, until the owner takes them in.
CREATE TABLE throttler.arrivals (
	n               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id              text NOT NULL UNIQUE,
	upstream        text NOT NULL,
	method          text NOT NULL,
	target          text NOT NULL,
	headers         jsonb NOT NULL, -- values are texts, or lists of them
	body            bytea,
	idempotency_key text NOT NULL,
	not_before      timestamptz,
	deadline        timestamptz,
	priority        integer NOT NULL,
	callback        text NOT NULL,
	submitted_by    text NOT NULL,
	doubtful        boolean NOT NULL DEFAULT false -- a lost commit may have taken it in: it waits for a person, who deletes it, or sets this to false
);

-- submit hands a call over: it exists if, and only if, the transaction commits. It returns the id of the call. A role
-- needs USAGE on the schema and EXECUTE on the function, and no other right.
--
--	SELECT throttler.submit('alipay', 'POST', '/gateway.do', headers => '{"Content-Type": "application/json"}',
--		body => convert_to('{"amount": 1}', 'UTF8'), idempotency_key => 'order 7');
-- +goose StatementBegin
CREATE FUNCTION throttler.submit(upstream text, method text, target text, headers jsonb DEFAULT '{}', body bytea DEFAULT NULL,
	idempotency_key text DEFAULT NULL, not_before timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL,
	priority integer DEFAULT 0, callback text DEFAULT NULL) RETURNS text
	LANGUAGE plpgsql SECURITY DEFINER SET search_path = throttler, pg_catalog, pg_temp AS $$
DECLARE
	call text;
	head integer;
BEGIN
	IF coalesce(upstream, '') = '' OR coalesce(method, '') = '' OR coalesce(target, '') = '' THEN
		RAISE EXCEPTION 'throttler.submit: upstream, method and target must be given' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF jsonb_typeof(coalesce(headers, '{}')) <> 'object' THEN
		RAISE EXCEPTION 'throttler.submit: headers is no JSON object, such as {"Content-Type": "application/json"}' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF NOT isfinite(coalesce(not_before, now())) OR NOT isfinite(coalesce(deadline, now())) THEN
		RAISE EXCEPTION 'throttler.submit: not_before and deadline must be instants, not infinity; leave one out that has none' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	head := octet_length(concat(upstream, method, target, headers::text, idempotency_key, callback));
	IF head > 262144 THEN
		RAISE EXCEPTION 'throttler.submit: upstream, method, target, headers, idempotency_key and callback have % bytes, at most 262144', head USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF octet_length(body) > 67108864 THEN
		RAISE EXCEPTION 'throttler.submit: the body has % bytes, at most 67108864', octet_length(body) USING ERRCODE = 'invalid_parameter_value';
	END IF;
	-- A UUID of version 7 (RFC 9562, 5.7): its time comes first.
	call := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
		PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid::text;
	INSERT INTO throttler.arrivals (id, upstream, method, target, headers, body, idempotency_key, not_before, deadline, priority, callback, submitted_by)
		VALUES (call, submit.upstream, submit.method, submit.target, coalesce(submit.headers, '{}'), submit.body, coalesce(submit.idempotency_key, ''),
			submit.not_before, submit.deadline, coalesce(submit.priority, 0), coalesce(submit.callback, ''), session_user);
	PERFORM pg_notify('throttler', 'arrival'); -- the owner looks at once; without it, at its next beat
	RETURN call;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION throttler.submit FROM PUBLIC;

-- For people: psql -c 'SELECT * FROM throttler.readable'.
CREATE VIEW throttler.readable AS SELECT id, upstream, state, -rank AS priority,
	to_timestamp(accepted_at / 1e6) AS accepted, to_timestamp(nullif(due, 0) / 1e6) AS due, to_timestamp(deadline / 1e6) AS deadline,
	to_timestamp(nullif(ended_at, 0) / 1e6) AS ended
	FROM throttler.current;

-- +goose Down
-- There is no downgrade: an older program uses the schema as it is, or refuses it by meta 'oldest'.
