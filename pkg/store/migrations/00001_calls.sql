-- Instants are microseconds since the Unix epoch, 0 for none; the views at the end
-- show them as text. Each sum is a CRC-32C over its row, checked whenever the row is read.

-- +goose Up

-- What is known of the store as a whole: id, epoch (grows with each process and each
-- restatement of quota), folded (the epoch up to which quota holds all that was spent),
-- mark (the latest wall clock of any commit), clean, backlog.
CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value BLOB
) WITHOUT ROWID;

-- A row is written when its call is accepted, and again when an attempt of it has
-- ended: a change in one place costs less than many small ones.
CREATE TABLE calls (
	seq         INTEGER PRIMARY KEY, -- age
	id          TEXT NOT NULL UNIQUE,
	upstream    TEXT NOT NULL,
	lane        INTEGER NOT NULL,    -- equal for calls that take the same permits
	state       TEXT NOT NULL,       -- waiting also while it is being sent
	rank        INTEGER NOT NULL,    -- priority, negated
	async       INTEGER NOT NULL,    -- nobody waits for the answer
	callback    TEXT NOT NULL,       -- who is told of its end
	resolves    TEXT NOT NULL,       -- the unknown call that it asks about
	epoch       INTEGER NOT NULL,    -- that accepted it, or sent it last
	bytes       INTEGER NOT NULL,
	accepted_at INTEGER NOT NULL,
	not_before  INTEGER NOT NULL,
	due         INTEGER NOT NULL,    -- not before when it is sent, retries included
	deadline    INTEGER NOT NULL,
	wake        INTEGER NOT NULL,    -- due or deadline, what comes first, if it was put off;
	                                 -- -1: cannot go on without the process that accepted it; else 0
	ended_at    INTEGER NOT NULL,    -- of its last attempt that has ended, or of the call
	attempts    TEXT NOT NULL,       -- JSON
	spent       TEXT NOT NULL,       -- JSON: permits that its attempts may have out
	sum         INTEGER NOT NULL,
	-- What goes on the wire, until the call is finished. If sealed is not null it
	-- holds nonce and AES-256-GCM of all of it, and the rest is empty. If both are
	-- null they are in bodies.
	method      TEXT,
	target      TEXT,
	headers     TEXT,                -- JSON
	body        BLOB,
	sealed      BLOB,
	request_sum INTEGER,
	-- What came back.
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

-- Bodies that are too big to be written with every change of their call.
CREATE TABLE bodies (
	seq    INTEGER PRIMARY KEY,
	body   BLOB,
	sealed BLOB
);

-- What is being sent, as of its intent.
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

-- Calls as they are.
CREATE VIEW current AS SELECT c.seq, id, upstream, lane, iif(f.seq IS NULL, state, 'sending') AS state, rank, coalesce(f.async, c.async) AS async,
	callback, resolves, coalesce(f.epoch, c.epoch) AS epoch, bytes, accepted_at, not_before, coalesce(f.due, c.due) AS due,
	coalesce(f.deadline, c.deadline) AS deadline, wake, ended_at, coalesce(f.attempts, c.attempts) AS attempts,
	coalesce(f.spent, c.spent) AS spent, coalesce(f.sum, c.sum) AS sum
	FROM calls c LEFT JOIN flights f ON f.seq = c.seq;

-- Notices that nobody has handed over yet as a webhook.
CREATE TABLE untold (
	notice TEXT PRIMARY KEY,
	seq    INTEGER NOT NULL
) WITHOUT ROWID;

-- Idempotency keys, as SHA-256.
CREATE TABLE keys (
	key         BLOB PRIMARY KEY,
	fingerprint TEXT NOT NULL,
	seq         INTEGER NOT NULL,
	until       INTEGER NOT NULL  -- kept at least; and longer, until its call has ended long ago
) WITHOUT ROWID;
CREATE INDEX keys_until ON keys (until);

-- Permits that may be out and are not among those of a call: blocks taken ahead of
-- the sends that they cover, and what the last process left.
CREATE TABLE quota (
	id       INTEGER PRIMARY KEY,
	upstream TEXT NOT NULL,
	name     TEXT NOT NULL,    -- of the limit
	key      TEXT NOT NULL,
	every    INTEGER NOT NULL, -- all permits of all keys
	permits  INTEGER NOT NULL,
	back     INTEGER NOT NULL, -- when they come back; 0 while nobody knows
	paused   INTEGER NOT NULL, -- somebody has shut the limit, or the key, until then
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
-- There is no way back: an older program refuses the file.
