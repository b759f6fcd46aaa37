-- +goose Up

-- Notices that a handler of the program gets, and no webhook: tell_at is the instant of the
-- next try, null for a webhook; failures counts the tries before.
ALTER TABLE untold ADD COLUMN tell_at INTEGER;
ALTER TABLE untold ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
CREATE INDEX untold_at ON untold (tell_at, notice, seq, failures) WHERE tell_at IS NOT NULL;

-- +goose Down
-- There is no downgrade: an older program refuses the file.
