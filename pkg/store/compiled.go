package store

import (
	"context"
	"database/sql"
)

// frequent are the queries that a reader compiles once for each of its connections. SQLite
// takes longer to compile one than to run it.
var frequent = []string{selectOwner, selectCall, selectWaitingCall, selectPendingCall, selectRequest, selectResponse, selectEndedBy, selectListedCall, selectChunks, selectSeqs, selectCandidate}

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

// statement returns the statement of a query, nil if it is not frequent.
func (c *compiled) statement(ctx context.Context, query string) *sql.Stmt {
	s := c.statements[query]
	if s != nil && c.tx != nil {
		s = c.tx.StmtContext(ctx, s)
	}
	return s
}

func (c *compiled) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if s := c.statement(ctx, query); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return c.querier.QueryRowContext(ctx, query, args...)
}

func (c *compiled) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s := c.statement(ctx, query); s != nil {
		return s.QueryContext(ctx, args...)
	}
	return c.querier.QueryContext(ctx, query, args...)
}
