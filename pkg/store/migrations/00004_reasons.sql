-- +goose Up

-- The last element of attempts may be the reason why the call ended: it has no number, and
-- is no attempt.
DROP VIEW readable;
CREATE VIEW readable AS SELECT id, upstream, state, -rank AS priority,
	strftime('%Y-%m-%dT%H:%M:%fZ', accepted_at / 1e6, 'unixepoch') AS accepted,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(due, 0) / 1e6, 'unixepoch') AS due,
	strftime('%Y-%m-%dT%H:%M:%fZ', deadline / 1e6, 'unixepoch') AS deadline,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(ended_at, 0) / 1e6, 'unixepoch') AS ended,
	json_array_length(attempts) - (attempts <> '[]' AND attempts ->> '$[#-1].n' IS NULL) AS attempts,
	coalesce(attempts ->> '$[#-1].outcome', attempts ->> '$[#-2].outcome') AS outcome, attempts ->> '$[#-1].reason' AS reason
	FROM current;

-- +goose Down
-- There is no downgrade: an older program refuses the file.
