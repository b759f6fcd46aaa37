-- Instants are microseconds since the Unix epoch, 0 for none; the views at the end
-- show them as text. ended_at, back and those of spent are on the clock of the process:
-- the wall clock as it was at its start, and from then on the monotonic one. Each sum is
-- a CRC-32C over its row, checked whenever the row is read; in a sealed file it is the first
-- 8 bytes of an HMAC-SHA-256, and spent and the key of quota are encrypted, in base64.

-- +goose Up

-- Facts about the whole store: id; epoch (grows with each process and each
-- replacement of quota); folded (the epoch up to which quota has all permits that may
-- be out); mark (the last commit: microseconds since the Unix epoch by the clock of the
-- process and by the wall clock, microseconds since the boot of the machine, and the id of
-- that boot); file (the inode and the time of birth of the file to which it belongs); base
-- (epoch and clock of the process: the file itself had all commits up to that one when
-- the last one was made); clean (the last process closed the file); backlog (JSON: the calls that
-- waited then, by upstream); seal (a text that only the key of an encrypted file decrypts).
CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value BLOB
) WITHOUT ROWID;

-- A row is written when its call is accepted, and again after each attempt: one
-- change in one place costs less than many small ones.
CREATE TABLE calls (
	seq         INTEGER PRIMARY KEY, -- age
	id          TEXT NOT NULL UNIQUE,
	upstream    TEXT NOT NULL,
	lane        INTEGER NOT NULL,    -- equal for calls of a flow that take the same permits
	state       TEXT NOT NULL,       -- waiting also while an attempt is in flight
	rank        INTEGER NOT NULL,    -- priority, negated
	async       INTEGER NOT NULL,    -- no caller waits for the response
	callback    TEXT NOT NULL,       -- the callback that its end is reported to
	resolves    TEXT NOT NULL,       -- the unknown call that it queries
	epoch       INTEGER NOT NULL,    -- in which it was accepted, or sent last
	bytes       INTEGER NOT NULL,
	accepted_at INTEGER NOT NULL,
	not_before  INTEGER NOT NULL,
	due         INTEGER NOT NULL,    -- the earliest instant of the next attempt
	deadline    INTEGER NOT NULL,
	wake        INTEGER NOT NULL,    -- due or deadline, the earlier one, if due is not 0;
	                                 -- -1: ends with the process that accepted it; else 0
	ended_at    INTEGER NOT NULL,    -- the end of the call, or of the last attempt that has ended
	attempts    TEXT NOT NULL,       -- JSON
	spent       TEXT NOT NULL,       -- JSON: the permits of its attempts that may be out
	sum         INTEGER NOT NULL,
	-- The request, until the call is finished. In an encrypted file sealed has the
	-- nonce and the ciphertext (AES-256-GCM) of all of it, and the rest is empty. If
	-- body and sealed are null, one of them is in bodies.
	method      TEXT,
	target      TEXT,
	headers     TEXT,                -- JSON
	body        BLOB,
	sealed      BLOB,
	request_sum INTEGER,
	-- The response.
	status         INTEGER,
	answer_headers TEXT,             -- JSON
	answer         BLOB,
	truncated      INTEGER,
	answer_sealed  BLOB,
	answer_sum     INTEGER
);
CREATE INDEX waiting  ON calls (upstream, rank, seq, lane, due, bytes) WHERE state = 'waiting';
CREATE INDEX waking   ON calls (wake) WHERE state = 'waiting' AND wake <> 0;
CREATE INDEX unsettled ON calls (upstream, bytes) WHERE state = 'unknown';
CREATE INDEX ended    ON calls (ended_at) WHERE ended_at > 0;

-- Bodies too big to be written with every change of their call.
CREATE TABLE bodies (
	seq    INTEGER PRIMARY KEY,
	body   BLOB,
	sealed BLOB
);

-- Attempts in flight, as of their intents.
CREATE TABLE flights (
	seq      INTEGER PRIMARY KEY,
	async    INTEGER NOT NULL,
	epoch    INTEGER NOT NULL,
	due      INTEGER NOT NULL,
	deadline INTEGER NOT NULL,
	attempts TEXT NOT NULL,
	spent    TEXT NOT NULL,
	sum      INTEGER NOT NULL
);

-- Calls with their attempts in flight.
CREATE VIEW current AS SELECT c.seq, id, upstream, lane, iif(f.seq IS NULL, state, 'sending') AS state, rank, coalesce(f.async, c.async) AS async,
	callback, resolves, coalesce(f.epoch, c.epoch) AS epoch, bytes, accepted_at, not_before, coalesce(f.due, c.due) AS due,
	coalesce(f.deadline, c.deadline) AS deadline, wake, ended_at, coalesce(f.attempts, c.attempts) AS attempts,
	coalesce(f.spent, c.spent) AS spent, coalesce(f.sum, c.sum) AS sum
	FROM calls c LEFT JOIN flights f ON f.seq = c.seq;

-- Notices without a webhook call yet.
CREATE TABLE untold (
	notice TEXT PRIMARY KEY,
	seq    INTEGER NOT NULL
) WITHOUT ROWID;

-- Idempotency keys, as SHA-256.
CREATE TABLE keys (
	key         BLOB PRIMARY KEY,
	fingerprint TEXT NOT NULL,
	seq         INTEGER NOT NULL,
	until       INTEGER NOT NULL  -- kept until then, and for KeepKeys after the end of its call
) WITHOUT ROWID;
CREATE INDEX keys_until ON keys (until);

-- Permits that may be out and belong to no call: leases taken ahead of the attempts
-- that use them, permits that earlier processes left, and pauses.
CREATE TABLE quota (
	id       INTEGER PRIMARY KEY,
	upstream TEXT NOT NULL,
	name     TEXT NOT NULL,    -- of the limit
	key      TEXT NOT NULL,
	every    INTEGER NOT NULL, -- all permits of all keys
	permits  INTEGER NOT NULL,
	back     INTEGER NOT NULL, -- when they come back; 0 while that is unknown
	paused   INTEGER NOT NULL, -- 1: a pause of the upstream, the limit or the key until back
	sum      INTEGER NOT NULL
);
CREATE INDEX quota_back ON quota (back) WHERE back > 0;

CREATE VIEW readable AS SELECT id, upstream, state, -rank AS priority,
	strftime('%Y-%m-%dT%H:%M:%fZ', accepted_at / 1e6, 'unixepoch') AS accepted,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(due, 0) / 1e6, 'unixepoch') AS due,
	strftime('%Y-%m-%dT%H:%M:%fZ', deadline / 1e6, 'unixepoch') AS deadline,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(ended_at, 0) / 1e6, 'unixepoch') AS ended,
	json_array_length(attempts) AS attempts, attempts ->> '$[#-1].outcome' AS outcome, attempts ->> '$[#-1].reason' AS reason
	FROM current;
CREATE VIEW out_now AS SELECT upstream, name AS "limit", key, every, permits, paused,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(back, 0) / 1e6, 'unixepoch') AS back
	FROM quota;

-- +goose Down
-- There is no downgrade: an older program refuses the file.
