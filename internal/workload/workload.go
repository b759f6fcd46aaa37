// Package workload reads, makes and writes loads: which calls come in, and when.
//
//	load, err := workload.Open("load.csv", cfg)          // or Generate("rate=100 for=60s", cfg)
//	for at, arrival, err := load.Next(); err == nil; …   // io.EOF at the end
//	recorder.Write(at, upstream, route)                  // what Open reads
//
// # Files
//
// A file has one arrival on a line, sorted by instant: CSV with a line of column
// names, or JSONL, an object on each line with the same names. Either as a CSV:
//
//	at,param.method,param.app_id
//	2026-11-21T09:00:00.000Z,alipay.trade.refund,2021001
//
//	at        instant (RFC 3339), or seconds since the beginning of 2026 in UTC
//	upstream  its name; may be left out if the configuration has one
//	priority  a whole number; 0 if left out
//	wait      how long the caller waits, a duration; it waits for ever if left out
//	delay     how long after it came in it is sent at the earliest, a duration
//
// The rest is what limits and share_by look at, in one of two forms. Either the
// fields that their expressions read, named as they are read: method, path,
// query.NAME, form.NAME, param.NAME, header.NAME, json.PATH. Or what the
// expressions came to, as a recording has it:
//
//	key.LIMIT   the call's key; empty (in JSON null): it is not under that limit;
//	            * where all its calls have one key
//	cost.LIMIT  permits that it takes; 1 if left out
//	flow        whose share it is of
//
// A field that an expression reads must be there, if empty, on each line: a load
// that does not say what a limit needs to know previews nothing. What is wrong
// with a file is an [*Error], with its line.
package workload

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// An Arrival is a call that comes in.
type Arrival struct {
	Upstream string
	Route    *scheduler.Route // may be shared by arrivals that are alike
	Priority int
	// MaxWait is how long the caller waits. The call is refused at once if its slot is
	// later than that. Zero means that no caller waits, and that the call may wait until
	// MaxAge of its upstream.
	MaxWait time.Duration
	// Delay is how long after its arrival the call is sent at the earliest.
	Delay time.Duration
}

// An Error tells what is wrong with a load, and where.
type Error struct {
	Name string // of the file, or the text of a generated load
	Line int    // 0: of no line
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Name + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A Load gives arrivals in the order of their instants. It has one owner.
type Load struct {
	name   string
	source source
	router *router
	close  func() error

	row   row // the next
	begin time.Time
	last  time.Duration
	err   error // instead of the next
}

// A source gives rows. The row belongs to the source, and is good until the next.
type source interface {
	// next fills in the next row; io.EOF after the last one.
	next(*row) error
	// done is how much of all rows has been given, from 0 to 1.
	done() float64
}

// epoch is the beginning where instants are seconds: calendars need a date.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Open reads a file, for a configuration without faults: .csv, or .jsonl (.ndjson).
// It may have columns of limits that only others of the configurations have, with
// which this one is compared. The error is an [*Error] or that of opening the file.
func Open(path string, c scheduler.Config, others ...scheduler.Config) (*Load, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	l, err := open(path, f, c, limitsOf(append(others, c)...))
	if err != nil {
		f.Close()
		return nil, err
	}
	l.close = f.Close
	return l, nil
}

func open(path string, f *os.File, c scheduler.Config, limits limitNames) (*Load, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	counted := &counter{r: f, size: info.Size()}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".csv":
		return newLoad(path, newCSV(counted, limits), c)
	case ".jsonl", ".ndjson":
		return newLoad(path, newJSONL(counted, limits), c)
	}
	return nil, &Error{path, 0, errors.New("a load is a .csv or a .jsonl file, or settings such as rate=100 for=60s")}
}

func newLoad(name string, s source, c scheduler.Config) (*Load, error) {
	r, err := newRouter(c)
	if err != nil {
		return nil, err
	}
	l := &Load{name: name, source: s, router: r, close: func() error { return nil }}
	if l.read(); l.err == io.EOF {
		return nil, l.fault(errors.New("is empty: there is no arrival in it"))
	}
	if l.err != nil {
		return nil, l.err
	}
	l.begin = epoch
	if !l.row.instant.IsZero() {
		l.begin = l.row.instant
	}
	return l, nil
}

// Begin returns the instant from which arrivals are counted: that of the first, or
// the beginning of 2026 where instants are seconds.
func (l *Load) Begin() time.Time { return l.begin }

// Done returns how much of the load has been given, from 0 to 1.
func (l *Load) Done() float64 { return l.source.done() }

// Close ends the reading.
func (l *Load) Close() error { return l.close() }

// Next returns the next arrival and when it comes, since the beginning. The error
// is io.EOF after the last one, or an [*Error].
func (l *Load) Next() (time.Duration, Arrival, error) {
	if l.err != nil {
		return 0, Arrival{}, l.err
	}
	at, err := l.offset()
	if err != nil {
		return 0, Arrival{}, l.fault(err)
	}
	a, err := l.router.arrival(&l.row)
	if err != nil {
		return 0, Arrival{}, l.fault(err)
	}
	l.last = at
	l.read()
	return at, a, nil
}

// read reads the next row, or notes why there is none.
func (l *Load) read() {
	if err := l.source.next(&l.row); err == io.EOF {
		l.err = io.EOF
	} else if err != nil {
		l.err = l.fault(err)
	}
}

// offset returns when the row comes, since the beginning.
func (l *Load) offset() (time.Duration, error) {
	at := l.row.offset
	if !l.row.instant.IsZero() {
		at = l.row.instant.Sub(l.begin)
	}
	if at < l.last {
		return 0, fmt.Errorf("at is %s, before the arrival above it by %v; sort the file by at", l.row.at, l.last-at)
	}
	return at, nil
}

func (l *Load) fault(err error) error { return &Error{l.name, l.row.line, err} }

// counter counts what is read of a file.
type counter struct {
	r          io.Reader
	read, size int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += int64(n)
	return n, err
}

func (c *counter) done() float64 { return float64(c.read) / math.Max(1, float64(c.size)) }
