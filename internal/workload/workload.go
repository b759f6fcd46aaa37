// Package workload reads, generates and writes loads: arrivals of calls with their instants.
//
//	load, err := workload.Open("load.csv", cfg)          // or Generate("rate=100/s for=60s", cfg)
//	for at, arrival, err := load.Next(); err == nil; …   // io.EOF at the end
//	recorder.Write(at, arrival)                          // a line for Open
//	recent.Add(at, arrival)                              // the latest ones, in bounded memory
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
//	upstream  its name; optional if the configuration has one upstream
//	priority  a whole number; 0 if left out
//	wait      a duration, the longest wait of the caller; no bound if left out
//	delay     a duration, the least time from arrival to sending
//
// The other columns are for limits and share_by, in one of two forms. The first
// form has the fields that the expressions read: method, path, query.NAME,
// form.NAME, param.NAME, header.NAME, json.PATH. The second form, that of a
// recording, has the values of the expressions:
//
//	key.LIMIT   the call's key; empty (in JSON null) if it is not under that limit;
//	            * if all calls have one key
//	cost.LIMIT  permits of the call; 1 if left out
//	flow        the call's flow
//
// A field that an expression reads must be on each line, even if it is empty:
// without it the limit cannot be computed. A fault of a file is an [*Error] with
// its line.
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

// An Error is a fault of a load, with its place.
type Error struct {
	Name string // of the file, or the text of a generated load
	Line int    // 0: not of a line
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

	row   row // the next row
	begin time.Time
	last  time.Duration
	err   error // instead of a next row
}

// A source gives rows. The row belongs to the source, and is valid until the next call.
type source interface {
	// next sets the next row; the error after the last one is io.EOF.
	next(*row) error
	// done returns the part of the load that has been given, from 0 to 1.
	done() float64
}

// epoch is the begin of a load with seconds as instants: calendars need a date.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Open reads a file, for a valid configuration: .csv, or .jsonl (.ndjson). The file
// may also have columns for limits of the other configurations, with which this one
// is compared. The error is an [*Error] or that of opening the file.
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
	return readAs(path, strings.ToLower(filepath.Ext(path)), &counter{r: f, size: info.Size()}, c, limits)
}

// Read reads the text of a file, as Open does. JSONL begins with a brace. The name is that of its
// errors.
func Read(name, text string, c scheduler.Config, others ...scheduler.Config) (*Load, error) {
	form := ".csv"
	if strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		form = ".jsonl"
	}
	return readAs(name, form, &counter{r: strings.NewReader(text), size: int64(len(text))}, c, limitsOf(append(others, c)...))
}

func readAs(name, form string, from *counter, c scheduler.Config, limits limitNames) (*Load, error) {
	switch form {
	case ".csv":
		return newLoad(name, newCSV(from, limits), c)
	case ".jsonl", ".ndjson":
		return newLoad(name, newJSONL(from, limits), c)
	}
	return nil, &Error{name, 0, errors.New("a load is a .csv or a .jsonl file, or settings such as rate=100/s for=60s")}
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

// Begin returns the instant at which the load begins: that of the first arrival,
// or the beginning of 2026 if instants are seconds.
func (l *Load) Begin() time.Time { return l.begin }

// Done returns the part of the load that has been given, from 0 to 1.
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

// read reads the next row or sets err.
func (l *Load) read() {
	if err := l.source.next(&l.row); err == io.EOF {
		l.err = io.EOF
	} else if err != nil {
		l.err = l.fault(err)
	}
}

// offset returns the row's instant, counted from begin.
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

// counter counts the bytes read of a file.
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
