-- +goose Up

-- What people, and programs in their name, have asked for: a table that only grows, but for
-- records whose time is over. At is microseconds since the Unix epoch by the wall clock. The sum
-- covers the texts in the clear; in a sealed file key, before, after and reason are encrypted.
CREATE TABLE audit (
	seq      INTEGER PRIMARY KEY,
	at       INTEGER NOT NULL,
	actor    TEXT NOT NULL,
	role     TEXT NOT NULL,
	via      TEXT NOT NULL,
	action   TEXT NOT NULL,
	upstream TEXT NOT NULL,
	call     TEXT NOT NULL,
	name     TEXT NOT NULL,    -- of the limit
	key      TEXT NOT NULL,
	before   TEXT NOT NULL,
	after    TEXT NOT NULL,
	reason   TEXT NOT NULL,
	sum      INTEGER NOT NULL
);
CREATE INDEX audit_at     ON audit (at);
CREATE INDEX audit_actor  ON audit (actor);
CREATE INDEX audit_action ON audit (action);
CREATE INDEX audit_call   ON audit (call) WHERE call <> '';

-- Of a pause: the name of the person; encrypted in a sealed file, as reason is.
ALTER TABLE quota ADD COLUMN who TEXT NOT NULL DEFAULT '';

DROP VIEW out_now;
CREATE VIEW out_now AS SELECT upstream, name AS "limit", key, every, permits, paused,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(back, 0) / 1e6, 'unixepoch') AS back,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(since, 0) / 1e6, 'unixepoch') AS since, who, reason
	FROM quota;

-- The element of attempts without a number has the decisions about the call as well, encrypted
-- in a sealed file.
DROP VIEW readable;
CREATE VIEW readable AS SELECT id, upstream, state, -rank AS priority,
	strftime('%Y-%m-%dT%H:%M:%fZ', accepted_at / 1e6, 'unixepoch') AS accepted,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(due, 0) / 1e6, 'unixepoch') AS due,
	strftime('%Y-%m-%dT%H:%M:%fZ', deadline / 1e6, 'unixepoch') AS deadline,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(ended_at, 0) / 1e6, 'unixepoch') AS ended,
	json_array_length(attempts) - (attempts <> '[]' AND attempts ->> '$[#-1].n' IS NULL) AS attempts,
	coalesce(attempts ->> '$[#-1].outcome', attempts ->> '$[#-2].outcome') AS outcome,
	coalesce(attempts ->> '$[#-1].reason', attempts ->> '$[#-2].reason') AS reason
	FROM current;

CREATE VIEW audit_log AS SELECT seq, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e6, 'unixepoch') AS at, actor, role, via, action,
	upstream, call, name AS "limit", key, before, after, reason FROM audit ORDER BY seq;

-- +goose Down
-- There is no downgrade: an older program refuses the file.
