package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"
	_ "modernc.org/sqlite"
)

// bare is the floor: one goroutine, natural batching, one table, prepared
// statements, the same pragmas. It knows nothing of calls.
type bare struct {
	db   *sql.DB
	ops  chan bareOp
	done chan struct{}
}

type bareOp struct {
	step int
	n    int64
	done chan struct{}
}

func newBare(path string) *bare {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(8000)")
	check(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE calls (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, due INTEGER NOT NULL, state TEXT NOT NULL, body BLOB);
		CREATE INDEX due ON calls (due) WHERE state = 'waiting'`)
	check(err)
	b := &bare{db: db, ops: make(chan bareOp, 1024), done: make(chan struct{})}
	go b.run()
	return b
}

func (b *bare) close() {
	close(b.ops)
	<-b.done
	b.db.Close()
}

func (b *bare) run() {
	defer close(b.done)
	ctx := context.Background()
	conn, err := b.db.Conn(ctx)
	check(err)
	defer conn.Close()
	var steps []*sql.Stmt
	for _, text := range []string{
		"INSERT INTO calls VALUES (?1, ?2, ?3, 'waiting', ?4)",
		"UPDATE calls SET state = 'sending' WHERE seq = ?1",
		"UPDATE calls SET state = 'done', body = NULL WHERE seq = ?1",
	} {
		s, err := conn.PrepareContext(ctx, text)
		check(err)
		defer s.Close()
		steps = append(steps, s)
	}
	exec := func(text string) {
		_, err := conn.ExecContext(ctx, text)
		check(err)
	}
	for op := range b.ops {
		batch := []bareOp{op}
		for more := true; more && len(batch) < 1024; {
			select {
			case op, open := <-b.ops:
				if open {
					batch = append(batch, op)
				}
				more = open
			default:
				more = false
			}
		}
		exec("BEGIN IMMEDIATE")
		for _, op := range batch {
			var err error
			if op.step == 0 {
				_, err = steps[0].Exec(op.n, uuid.Must(uuid.NewV7()).String(), time.Now().UnixMicro(), body)
			} else {
				_, err = steps[op.step].Exec(op.n)
			}
			check(err)
		}
		exec("COMMIT")
		for _, op := range batch {
			close(op.done)
		}
	}
}

func (b *bare) one(n int64, life bool) {
	steps := 1
	if life {
		steps = 3
	}
	for step := range steps {
		op := bareOp{step, n, make(chan struct{})}
		b.ops <- op
		<-op.done
	}
}
