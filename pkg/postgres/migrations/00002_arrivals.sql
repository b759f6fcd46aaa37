-- +goose NO TRANSACTION
-- +goose Up

-- The calls of an upstream that have arrived, in their order: many that have to wait do not hold up the look for those of
-- other upstreams. A configured name has at most 256 bytes; one in arrivals may be too long for an index. Replicas and programs
-- go on meanwhile; an index of a try that has failed is not valid, and is made anew.
DROP INDEX IF EXISTS throttler.arrivals_of;
CREATE INDEX CONCURRENTLY arrivals_of ON throttler.arrivals (left(upstream, 256), n) WHERE NOT doubtful;

-- +goose Down
-- There is no downgrade: an older program uses the schema as it is.
