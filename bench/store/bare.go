package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"
	_ "modernc.org/sqlite"
)

// bare is the floor: the shortest program that writes the rows that a call needs. It
// has one goroutine, natural batching, prepared statements and the same pragmas. A
// call has a row, and its request another; the intent changes the call's row; the
// outcome changes it, drops the request and adds the response. The call can be found
// by id, and by rank while it waits. There are no checksums, no epochs, no idempotency
// keys, and no indexes of attempts in flight, of ends and of due times; texts are
// constants.
type bare struct {
	db   *sql.DB
	ops  chan bareOp
	done chan struct{}
}

// The texts of a call.
const (
	aHeader  = `{"X-A":["1","2"]}`
	anIntent = `[{"n":1,"sent_at":"2026-01-01T00:00:00.123456789Z"}]`
	anEnd    = `[{"n":1,"sent_at":"2026-01-01T00:00:00.123456789Z","ended_at":"2026-01-01T00:00:00.234567Z","status":200,"outcome":"done"}]`
	aHold    = `[{"limit":"app","permits":1}]`
)

var answer = []byte("answer")

// The changes of a call.
const (
	accept = iota
	intend
	end
)

type bareOp struct {
	step int // accept, intend or end
	n    int64
	done chan struct{}
}

func newBare(path string) *bare {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(8000)")
	check(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`
		CREATE TABLE calls (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, upstream TEXT NOT NULL, state TEXT NOT NULL, rank INTEGER NOT NULL,
			due INTEGER NOT NULL, deadline INTEGER NOT NULL, accepted_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, attempts TEXT NOT NULL, spent TEXT NOT NULL);
		CREATE INDEX waiting ON calls (upstream, rank, seq) WHERE state = 'waiting';
		CREATE TABLE bodies (seq INTEGER PRIMARY KEY, target TEXT NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL);
		CREATE TABLE results (seq INTEGER PRIMARY KEY, status INTEGER NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL)`)
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
	prepare := func(text string) func(args ...any) {
		stmt, err := conn.PrepareContext(ctx, text)
		check(err)
		return func(args ...any) {
			_, err := stmt.Exec(args...)
			check(err)
		}
	}
	begin, commit := prepare("BEGIN IMMEDIATE"), prepare("COMMIT")
	insert := prepare("INSERT INTO calls VALUES (?, ?, 'api', 'waiting', 0, 0, ?, ?, 0, '[]', '')")
	insertBody := prepare("INSERT INTO bodies VALUES (?, '/pay?n=1', ?, ?)")
	sending := prepare("UPDATE calls SET state = 'sending', attempts = ?, spent = ? WHERE seq = ? AND state = 'waiting'")
	record := prepare("UPDATE calls SET state = 'done', ended_at = ?, attempts = ?, spent = ? WHERE seq = ?")
	deleteBody := prepare("DELETE FROM bodies WHERE seq = ?")
	insertResult := prepare("INSERT INTO results VALUES (?, 200, ?, ?)")
	steps := []func(n, now int64){
		func(n, now int64) {
			insert(n, uuid.Must(uuid.NewV7()).String(), now, now)
			insertBody(n, aHeader, body)
		},
		func(n, now int64) { sending(anIntent, aHold, n) },
		func(n, now int64) {
			record(now, anEnd, aHold, n)
			deleteBody(n)
			insertResult(n, aHeader, answer)
		},
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
		begin()
		for _, op := range batch {
			steps[op.step](op.n, time.Now().UnixMicro())
		}
		commit()
		for _, op := range batch {
			close(op.done)
		}
	}
}

func (b *bare) one(n int64, whole bool) {
	b.change(accept, n)
	if whole {
		b.change(intend, n)
		b.change(end, n)
	}
}

// change makes one change of a call, and returns when it is synced.
func (b *bare) change(step int, n int64) {
	op := bareOp{step, n, make(chan struct{})}
	b.ops <- op
	<-op.done
}
