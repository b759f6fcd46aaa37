package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A File is a store that is only read, also while another process has it.
type File struct{ d *DB }

// Read opens a file for reading. It fails if that is no store, or if it was written
// by a newer program. Of the options only SealKey matters.
func Read(path string, o Options) (*File, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("store: %s: is not a file", path)
	}
	d := &DB{path: path, options: o, broken: make(chan struct{})}
	var err error
	if d.seal, err = newSeal(o.SealKey); err != nil {
		return nil, err
	}
	if d.read, err = sql.Open("sqlite", d.dsn("mode=ro&_pragma=query_only(1)")); err != nil {
		return nil, err
	}
	f := &File{d}
	if err := knowSchema(d.read); err != nil {
		f.Close()
		return nil, f.says(err)
	}
	return f, nil
}

// says names the file in front of an error.
func (f *File) says(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store: %s: %w", f.d.path, explain(err))
}

// Close closes the file.
func (f *File) Close() error { return f.d.read.Close() }

// Check reads everything, and returns how many calls there are. The error joins
// what is damaged.
func (f *File) Check() (calls int, err error) {
	if _, err := f.d.knowKey(f.d.read); err != nil {
		return 0, f.says(err)
	}
	rows, err := f.d.read.Query("PRAGMA integrity_check")
	if err != nil {
		return 0, f.says(err)
	}
	defer rows.Close()
	var faults []error
	for rows.Next() {
		var found string
		if err := rows.Scan(&found); err != nil {
			return 0, f.says(err)
		}
		if found != "ok" {
			faults = append(faults, errors.New(found))
		}
	}
	if err := rows.Err(); err != nil {
		return 0, f.says(err)
	}
	if err := strayFlights(f.d.read); err != nil {
		faults = append(faults, err)
	}
	err = f.each(func(r *row) error {
		calls++
		if _, err := f.d.whole(context.Background(), r); err != nil {
			faults = append(faults, err)
		}
		if _, err := f.d.entry(f.d.read, r); err != nil {
			faults = append(faults, err)
		}
		return nil
	})
	if len(faults) > 0 {
		err = errors.Join(fmt.Errorf("store: %s is damaged: %w; %s", f.d.path, errors.Join(faults...), mend), err)
	}
	return calls, err
}

// each calls do with every call, the oldest first.
func (f *File) each(do func(r *row) error) error {
	for seq := int64(0); ; {
		rows, err := f.d.read.Query("SELECT "+columns+" FROM current WHERE seq > ? ORDER BY seq LIMIT 500", seq)
		if err != nil {
			return f.says(err)
		}
		page, err := scan(rows)
		if err != nil || len(page) == 0 {
			return f.says(err)
		}
		for _, r := range page {
			if err := do(r); err != nil {
				return err
			}
		}
		seq = page[len(page)-1].seq
	}
}

// Calls calls do with every call, the oldest first, until it returns an error.
func (f *File) Calls(do func(*scheduler.Call) error) error {
	return f.each(func(r *row) error {
		c, err := f.d.whole(context.Background(), r)
		if err != nil {
			return f.says(err)
		}
		return do(c)
	})
}

// A Stat counts the calls of an upstream in one state.
type Stat struct {
	Upstream string
	State    scheduler.State
	Calls    int
	Oldest   time.Time // acceptance
}

// Stats counts all calls.
func (f *File) Stats() ([]Stat, error) {
	rows, err := f.d.read.Query("SELECT upstream, state, count(*), min(accepted_at) FROM current GROUP BY upstream, state ORDER BY upstream, state")
	if err != nil {
		return nil, f.says(err)
	}
	defer rows.Close()
	var all []Stat
	for rows.Next() {
		var s Stat
		var oldest int64
		if err := rows.Scan(&s.Upstream, &s.State, &s.Calls, &oldest); err != nil {
			return nil, f.says(err)
		}
		s.Oldest = instant(oldest)
		all = append(all, s)
	}
	return all, f.says(rows.Err())
}
