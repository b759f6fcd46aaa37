-- +goose Up

-- Calls that ended otherwise than done, which are few: a list of them reads no others. SQLite
-- sees that a state is one of these only if they are joined by OR.
CREATE INDEX settled ON calls (state, id, upstream)
	WHERE state = 'failed' OR state = 'expired' OR state = 'exhausted' OR state = 'cancelled';

-- +goose Down
-- There is no downgrade: an older program refuses the file.
