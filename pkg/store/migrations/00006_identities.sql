-- +goose Up

-- Business numbers of a call by name, as JSON, empty for none. In a sealed file they are
-- encrypted, in base64. The sum of the row covers the text in the clear, unless it is empty.
ALTER TABLE calls ADD COLUMN numbers TEXT NOT NULL DEFAULT '';

DROP VIEW current;
CREATE VIEW current AS SELECT c.seq, id, upstream, lane, iif(f.seq IS NULL, state, 'sending') AS state, rank, coalesce(f.async, c.async) AS async,
	callback, resolves, coalesce(f.epoch, c.epoch) AS epoch, bytes, accepted_at, not_before, coalesce(f.due, c.due) AS due,
	coalesce(f.deadline, c.deadline) AS deadline, wake, ended_at, coalesce(f.attempts, c.attempts) AS attempts,
	coalesce(f.spent, c.spent) AS spent, coalesce(f.sum, c.sum) AS sum, numbers
	FROM calls c LEFT JOIN flights f ON f.seq = c.seq;

-- A key is an identity, which the configuration has computed, if ended_by is not null. It is
-- the SHA-256 of its text and, in a sealed file, the HMAC-SHA-256 of that: business numbers can be
-- guessed. Ended_by is the call that has ended all calls of the identity, empty for none.
ALTER TABLE keys ADD COLUMN ended_by TEXT;

-- +goose Down
-- There is no downgrade: an older program refuses the file.
