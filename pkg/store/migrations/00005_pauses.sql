-- +goose Up

-- Of a pause: when it began, and by whom and why; encrypted in a sealed file, as key is.
ALTER TABLE quota ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE quota ADD COLUMN reason TEXT NOT NULL DEFAULT '';

DROP VIEW out_now;
CREATE VIEW out_now AS SELECT upstream, name AS "limit", key, every, permits, paused,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(back, 0) / 1e6, 'unixepoch') AS back,
	strftime('%Y-%m-%dT%H:%M:%fZ', nullif(since, 0) / 1e6, 'unixepoch') AS since, reason
	FROM quota;

-- +goose Down
-- There is no downgrade: an older program refuses the file.
