package store

import (
	"context"
	"database/sql"
)

// frequent are the queries that a reader compiles once for each of its connections. SQLite
// takes longer to compile one than to run it.
var frequent = []string{selectOwner, selectCall, selectWaitingCall, selectPendingCall, selectRequest, selectResponse, selectEndedBy, selectListedCall, selectChunk, selectSeqs, selectCandidate}

// A compiled is a querier that runs the frequent queries as statements of a pool.
type compiled struct {
	querier            // runs the other queries
	tx         *sql.Tx // in which the statements run; nil if in none
	statements map[string]*sql.Stmt
}

// compile compiles the frequent queries. The statements end with the pool.
func compile(db *sql.DB) (*compiled, error) {
	c := &compiled{querier: db, statements: make(map[string]*sql.Stmt)}
	for _, query := range frequent {
		var err error
		if c.statements[query], err = db.Prepare(query); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// in returns the querier of a transaction of the pool.
func (c *compiled) in(tx *sql.Tx) *compiled { return &compiled{tx, tx, c.statements} }

func (c *compiled) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s := c.statements[query]
	switch {
	case s == nil:
		return c.querier.QueryRowContext(ctx, query, args...)
	case c.tx != nil:
		s = c.tx.StmtContext(ctx, s)
	}
	return s.QueryRowContext(ctx, args...)
}
