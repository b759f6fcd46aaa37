package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// ErrTermOver is in the error of a store whose term is over.
var ErrTermOver = errors.New("the term of this replica is over: another one has the calls, or this one was cut off from the server for longer than its lease")

// A failure is the error that ended a store.
type failure struct {
	place string
	once  sync.Once
	ended chan struct{} // closed when err is set
	err   error
}

func newFailure(place string) *failure { return &failure{place: place, ended: make(chan struct{})} }

// set ends the store, unless an earlier error has done so.
func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = fmt.Errorf("%w: postgres: %s: %w", scheduler.ErrBroken, f.place, err)
		close(f.ended)
	})
}

// get returns why the store has ended, nil while it works.
func (f *failure) get() error {
	select {
	case <-f.ended:
		return f.err
	default:
		return nil
	}
}

// Codes of errors: https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	diskFull         = "53100"
	tooManyClients   = "53300"
	invalidPassword  = "28P01"
	invalidRole      = "28000"
	noDatabase       = "3D000"
	noPrivilege      = "42501"
	readOnly         = "25006"
	lockNotAvailable = "55P03"
	cancelled        = "57014" // by pg_cancel_backend, or a time-out of statements
	unknownSetting   = "42704"
	noSchema         = "3F000"
	noTable          = "42P01"
	uniqueViolation  = "23505"
	heldBack         = "TH001" // by the function advance
)

// code returns the SQLSTATE of an error, empty if it is not the server's.
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// isAway reports whether an error says that the server, or the connection to it, is away, or that
// it was busy or full: the same may succeed later.
func isAway(err error) bool {
	if err == nil {
		return false
	}
	switch c := code(err); {
	case c == "":
		var network net.Error
		var connect *pgconn.ConnectError
		return errors.As(err, &network) || errors.As(err, &connect) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err)
	case strings.HasPrefix(c, "08"), strings.HasPrefix(c, "57P"), strings.HasPrefix(c, "25P"), strings.HasPrefix(c, "40"), strings.HasPrefix(c, "53"):
		return true // connections that broke, a stop or a start, time-outs of a session, a deadlock, no room on disk, no memory, too many clients
	default:
		return c == readOnly || c == lockNotAvailable || c == cancelled
	}
}

// explain says what an operator can do about an error of [Open].
func explain(err error) error {
	hint := ""
	switch code(err) {
	case invalidPassword, invalidRole:
		hint = "the server refuses the role or its password; see store_secret (Options.Password), PGPASSWORD and pg_hba.conf"
	case noDatabase:
		hint = "make the database: createdb"
	case noPrivilege:
		hint = "the role needs more rights; throttler check --connect names the GRANT"
	case diskFull:
		hint = "make room on the disk of the server"
	case tooManyClients:
		hint = "the server takes no more connections; a replica needs up to 7"
	case readOnly:
		hint = "the server is a standby; name the primary, or several hosts with target_session_attrs=read-write"
	case unknownSetting:
		hint = "the server must be PostgreSQL 14 or newer"
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		var network net.Error
		switch {
		case hint != "":
		case errors.As(err, &network) && network.Timeout():
			hint = silent(connect.Config.ConnectTimeout)
		default:
			hint = "is the server running, and is its address right?"
		}
		err = oneLine{err}
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, hint)
}

// silent says that a server takes connections or packets, and no answer comes.
func silent(within time.Duration) string {
	return fmt.Sprintf("the server did not answer within %v; is the address right, and does a firewall drop packets?", within)
}

// oneLine is an error whose text has a line for each address, some twice, of which the first has more words.
type oneLine struct{ error }

func (e oneLine) Error() string {
	var lines []string
	for line := range strings.Lines(e.error.Error()) {
		line = strings.TrimSpace(line)
		if !slices.ContainsFunc(lines, func(said string) bool { return strings.HasSuffix(said, line) }) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

func (e oneLine) Unwrap() error { return e.error }
