package store

import (
	"database/sql"
	"errors"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// smallBody is the size, in bytes, up to which a body is in its call's row, which is
// written anew with every outcome: half a page of the file. A bigger one has a row
// of its own.
const smallBody = 2048

// maxArgs is at least the number of values of any change: a list of them grows nowhere.
const maxArgs = 24

// A new call waits, and has no attempt.
const insertCall = `INSERT INTO calls (seq, id, upstream, lane, rank, async, callback, resolves, epoch, bytes, accepted_at, not_before,
	due, deadline, wake, sum, facts, ` + columns.OfRequest + `, state, ended_at, attempts, spent)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'waiting', 0, '[]', '')`

// insert adds a call; request is nil if it is not to be kept.
func (c *conn) insert(r *columns.Row, request *columns.Content) error {
	args := append(make([]any, 0, maxArgs), r.Seq, r.ID, r.Upstream, r.Lane, r.Rank, r.Async, r.Callback, r.Resolves, c.epoch, r.Bytes,
		r.Accepted, r.NotBefore, r.Due, r.Deadline, r.Wake, r.Sum, r.Facts)
	switch {
	case request == nil:
		args = append(args, nil, nil, nil, nil, nil, nil)
	case len(request.Body)+len(request.Encrypted) > smallBody:
		if err := c.exec("INSERT INTO bodies VALUES (?, ?, ?)", r.Seq, request.Body, request.Encrypted); err != nil {
			return err
		}
		args = append(args, request.Method, request.Target, request.Headers, nil, nil, request.Sum)
	default:
		args = append(args, request.Method, request.Target, request.Headers, request.Body, request.Encrypted, request.Sum)
	}
	c.added = append(c.added, indexed{located{r.Seq, r.ID}, r.Terms})
	if r.Seq <= c.index.indexed {
		if err := c.exec("INSERT INTO strays VALUES (?)", r.Seq); err != nil {
			return err
		}
	}
	return c.exec(insertCall, args...)
}

// owner returns the id of the call that owns a key, empty if there is none.
func (c *conn) owner(k columns.StoredKey, fingerprint string, before int64) (id string, reused, err error) {
	o := &columns.KeyOwner{}
	if err := c.one(selectOwner, []any{k.Hash}, o.Fields()...); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", nil, err
	}
	id, reused = o.Claim(fingerprint, before)
	return id, reused, nil
}

// claim takes the keys of an entry for its call, and keeps them for keep microseconds at least. If
// a call owns one of them, it takes none and returns the id of the owner.
func (c *conn) claim(keys []columns.StoredKey, e *scheduler.Entry, r *columns.Row, keep int64) (owner string, reused, err error) {
	for _, k := range keys {
		if owner, reused, err = c.owner(k, e.Fingerprint, r.Accepted-keep); owner != "" || reused != nil || err != nil {
			return owner, reused, err
		}
	}
	for _, k := range keys {
		if err := c.exec("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", k.Hash, e.Fingerprint, r.Seq, r.Accepted+keep, k.EndedBy); err != nil {
			return "", nil, err
		}
	}
	return "", nil, nil
}

// begin adds the intent of an attempt. It reports whether the call was waiting.
func (c *conn) begin(r *columns.Row) (waiting bool, err error) {
	n, err := c.changed("INSERT OR IGNORE INTO flights SELECT seq, ?, ?, ?, ?, ?, ?, ? FROM calls WHERE seq = ? AND id = ? AND state = 'waiting'",
		r.Async, c.epoch, r.Due, r.Deadline, r.Attempts, r.Spent, r.Sum, r.Seq, r.ID)
	return n > 0, err
}

// A transition selects the columns that an update changes.
type transition struct {
	ends     bool // the call is finished: its request goes
	answered bool // it has a response
}

// updates are the statements of update.
var updates = func() map[transition]string {
	all := make(map[transition]string)
	for _, t := range []transition{{}, {ends: true}, {answered: true}, {true, true}} {
		set := "state = ?, rank = ?, async = ?, epoch = iif(?, ?, epoch), not_before = ?, ended_at = ?, attempts = ?, spent = ?, due = ?, deadline = ?, wake = iif(wake < 0 AND ?, wake, ?), sum = ?"
		if t.ends {
			set += ", method = NULL, target = NULL, headers = NULL, body = NULL, sealed = NULL, request_sum = NULL"
		}
		if t.answered {
			set += ", status = ?, answer_headers = ?, answer = ?, truncated = ?, answer_sealed = ?, answer_sum = ?"
		}
		all[t] = "UPDATE calls SET " + set + " WHERE seq = ? AND id = ? AND (state = 'waiting' OR state = 'unknown')"
	}
	return all
}()

// update writes a call that was waiting, in flight or unknown; known is false if
// there is no such call. A call that is bound to its process stays so if stayBound.
func (c *conn) update(call *scheduler.Call, r *columns.Row, response *columns.Content, stayBound bool) (known bool, err error) {
	sent, err := c.changed("DELETE FROM flights WHERE seq = ?", r.Seq)
	if err != nil {
		return false, err
	}
	t := transition{ends: call.State.Finished(), answered: response != nil && !c.lowSpace}
	args := append(make([]any, 0, maxArgs), r.State, r.Rank, r.Async, sent > 0, c.epoch, r.NotBefore, r.Ended, r.Attempts, r.Spent, r.Due, r.Deadline, stayBound, r.Wake, r.Sum)
	if t.answered {
		args = append(args, response.Status, response.Headers, response.Body, response.Truncated, response.Encrypted, response.Sum)
	}
	n, err := c.changed(updates[t], append(args, r.Seq, r.ID)...)
	if t.ends && err == nil {
		err = c.exec("DELETE FROM bodies WHERE seq = ?", r.Seq)
	}
	if n > 0 && err == nil {
		err = c.noteEnd(call)
	}
	return n > 0, err
}

// noteEnd notes the end of a call, to be told by a webhook or to the handler. The handler gets
// no earlier end of it any more.
func (c *conn) noteEnd(call *scheduler.Call) error {
	var at any // a webhook's is null
	if call.Handled() {
		at = columns.Micros(time.Now())
		if err := c.exec("DELETE FROM untold WHERE notice > ? AND notice < ?", call.ID+".", call.ID+"/"); err != nil { // "/" follows the dot of a notice
			return err
		}
	}
	if notice := call.Notice(); notice != "" {
		return c.exec("INSERT OR IGNORE INTO untold (notice, seq, tell_at) VALUES (?, ?, ?)", notice, call.Seq, at)
	}
	return nil
}

// backlog counts, by upstream, the calls that wait or are unknown.
func (c *conn) backlog() (map[string]scheduler.Backlog, error) {
	rows, err := c.query(`SELECT 1, upstream, count(*), sum(bytes) FROM calls INDEXED BY waiting WHERE state = 'waiting' GROUP BY upstream
		UNION ALL SELECT 0, upstream, count(*), sum(bytes) FROM calls INDEXED BY unsettled WHERE state = 'unknown' AND async GROUP BY upstream`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := make(map[string]scheduler.Backlog)
	for rows.Next() {
		var waits bool
		var name string
		var n int
		var bytes int64
		if err := rows.Scan(&waits, &name, &n, &bytes); err != nil {
			return nil, err
		}
		b := all[name]
		b.Bytes += bytes
		if waits {
			b.Waiting = n
		} else {
			b.Unknown = n
		}
		all[name] = b
	}
	return all, rows.Err()
}
