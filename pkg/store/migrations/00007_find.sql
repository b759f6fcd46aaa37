-- +goose Up

-- The facts by which people know a call, which never change: a checksum of them and their JSON.
-- Calls of earlier schemas have the JSON of their business numbers alone. In a sealed file all
-- of it is encrypted, in base64.
DROP VIEW readable;
DROP VIEW current;
ALTER TABLE calls RENAME COLUMN numbers TO facts;
CREATE VIEW current AS SELECT c.seq, id, upstream, lane, iif(f.seq IS NULL, state, 'sending') AS state, rank, coalesce(f.async, c.async) AS async,
	callback, resolves, coalesce(f.epoch, c.epoch) AS epoch, bytes, accepted_at, not_before, coalesce(f.due, c.due) AS due,
	coalesce(f.deadline, c.deadline) AS deadline, wake, ended_at, coalesce(f.attempts, c.attempts) AS attempts,
	coalesce(f.spent, c.spent) AS spent, coalesce(f.sum, c.sum) AS sum, facts
	FROM calls c LEFT JOIN flights f ON f.seq = c.seq;
CREATE VIEW readable AS SELECT id, upstream, state, -rank AS priority,
	strftime('%Y-%m-%dT%H:%M:%fZ', accepted_at / 1e6, 'unixepoch') AS accepted,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(due, 0) / 1e6, 'unixepoch') AS due,
	strftime('%Y-%m-%dT%H:%M:%fZ', deadline / 1e6, 'unixepoch') AS deadline,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(ended_at, 0) / 1e6, 'unixepoch') AS ended,
	json_array_length(attempts) - (attempts <> '[]' AND attempts ->> '$[#-1].n' IS NULL) AS attempts,
	coalesce(attempts ->> '$[#-1].outcome', attempts ->> '$[#-2].outcome') AS outcome, attempts ->> '$[#-1].reason' AS reason
	FROM current;

-- A list of the calls of a state comes by id.
DROP INDEX unsettled;
CREATE INDEX unsettled ON calls (id, upstream, bytes) WHERE state = 'unknown';
CREATE INDEX queued ON calls (id) WHERE state = 'waiting';
DROP INDEX settled;
CREATE INDEX settled ON calls (state, id, upstream)
	WHERE state = 'done' OR state = 'failed' OR state = 'expired' OR state = 'exhausted' OR state = 'cancelled';

-- Blocks are some thousand calls each that were accepted after another, and their terms: hashes
-- of the texts by which calls are found. A block is written as a whole, with the commit that
-- fills it; the newest one is in memory alone, and is made anew from its calls at each start:
-- those whose seq is above meta 'indexed', and strays.
CREATE TABLE blocks (
	block INTEGER PRIMARY KEY,
	first INTEGER NOT NULL, -- the lowest seq
	last  INTEGER NOT NULL,
	low   TEXT NOT NULL,    -- the lowest id
	high  TEXT NOT NULL,
	calls BLOB NOT NULL,    -- the seqs in the order of the ids, as differences
	sum   INTEGER NOT NULL
);

-- The terms of a block that begin with the same six bits, in order: four bytes of each, and two
-- that number its call by its id.
CREATE TABLE terms (
	place INTEGER PRIMARY KEY, -- 64 * block + those bits
	chunk BLOB NOT NULL,
	sum   INTEGER NOT NULL
);

-- Calls that were accepted after a block was written whose seqs are higher.
CREATE TABLE strays (seq INTEGER PRIMARY KEY);

-- +goose Down
-- There is no downgrade: an older program refuses the file.
