package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

// A conn is the connection that changes the file. The writer's goroutine owns it.
type conn struct {
	*sql.Conn
	columns.Clock
	codec    *columns.Codec
	queries  map[string]*sql.Stmt   // compiled
	changes  map[string]driver.Stmt // compiled
	args     []driver.NamedValue    // of the change that runs, kept for the next
	epoch    int64                  // of this process; see the table meta
	id       string                 // of the store, from the recovery on
	file     string                 // the identity of its file
	restored string                 // the id that a restored copy gets; empty if it is none
	lowSpace bool                   // the reserve is used up: responses are left out
	index    *index
	added    []indexed // calls that are new in the transaction
	left     []block   // by the transaction, if it has dropped blocks
	dropped  bool
	marks    bool // commits are marked: the holds are on the clock of this process
}

func newConn(pool *sql.DB, k columns.Clock, d *columns.Codec) (*conn, error) {
	c, err := pool.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, Clock: k, codec: d, queries: make(map[string]*sql.Stmt), changes: make(map[string]driver.Stmt)}, nil
}

// close gives the connection back. An open statement would keep the file open.
func (c *conn) close() {
	for _, s := range c.queries {
		s.Close()
	}
	for _, s := range c.changes {
		s.Close()
	}
	c.Conn.Close()
}

// compiled returns a query, compiled once.
func (c *conn) compiled(query string) (*sql.Stmt, error) {
	s := c.queries[query]
	if s == nil {
		var err error
		if s, err = c.PrepareContext(context.Background(), query); err != nil {
			return nil, err
		}
		c.queries[query] = s
	}
	return s, nil
}

// query returns the rows of a query.
func (c *conn) query(query string, args ...any) (*sql.Rows, error) {
	s, err := c.compiled(query)
	if err != nil {
		return nil, err
	}
	return s.Query(args...)
}

// one reads one row; sql.ErrNoRows if there is none.
func (c *conn) one(query string, args []any, to ...any) error {
	s, err := c.compiled(query)
	if err != nil {
		return err
	}
	return s.QueryRow(args...).Scan(to...)
}

// adopt makes the file the store with the id. A restored copy is adopted when the limits that are full because of it are stored:
// before that it is refused without Options.Restored.
func (c *conn) adopt() error { return errors.Join(c.set("id", c.id), c.set("file", c.file)) }

// set writes a value of meta.
func (c *conn) set(name string, value any) error {
	return c.exec("INSERT OR REPLACE INTO meta VALUES (?, ?)", name, value)
}

func (c *conn) exec(query string, args ...any) error {
	_, err := c.changed(query, args...)
	return err
}

// changed runs a statement and returns how many rows it changed. It uses the driver's
// own connection: a change has many values, and database/sql does more for each than
// is needed.
func (c *conn) changed(query string, args ...any) (n int64, err error) {
	c.args = c.args[:0]
	for i, a := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			return 0, err
		}
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	err = c.Raw(func(raw any) (err error) {
		s := c.changes[query]
		if s == nil {
			if s, err = raw.(driver.ConnPrepareContext).PrepareContext(context.Background(), query); err != nil {
				return err
			}
			c.changes[query] = s
		}
		r, err := s.(driver.StmtExecContext).ExecContext(context.Background(), c.args)
		if err == nil {
			n, err = r.RowsAffected()
		}
		return err
	})
	return n, err
}
