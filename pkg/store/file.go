package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A File is a store that is only read, also while another process has it.
type File struct {
	path  string
	db    *sql.DB
	codec *columns.Codec
}

// Read opens a file for reading. It fails if that is no store, or if it was written
// by a newer program. Of the options only SealKey matters.
func Read(path string, o Options) (*File, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("store: %s: is not a file", path)
	}
	codec, err := columns.NewCodec(o.SealKey)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, o.vfs, "mode=ro&_pragma=query_only(1)"))
	if err != nil {
		return nil, err
	}
	f := &File{path, db, codec}
	if err := checkSchema(db); err != nil {
		f.Close()
		return nil, f.explain(err)
	}
	return f, nil
}

// explain names the file in front of an error.
func (f *File) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store: %s: %w", f.path, explain(err))
}

// Close closes the file.
func (f *File) Close() error { return f.db.Close() }

// Copied returns the error with which [Open] would refuse the file because it is a copy,
// nil if it is none.
func (f *File) Copied() error {
	path, err := resolved(f.path)
	if err != nil {
		return f.explain(err)
	}
	own, err := os.Open(path)
	if err != nil {
		return f.explain(err)
	}
	defer own.Close()
	info, err := own.Stat()
	if err != nil {
		return f.explain(err)
	}
	beside, err := os.Open(path + "-lock")
	if err == nil {
		defer beside.Close()
	}
	id, at := note{beside}.read() // before the file, which another process may change
	from, err := originOf(path, Options{})
	if err == nil {
		err = from.refuse(fileID(own, info), id, at)
	}
	return f.explain(err)
}

// Check reads everything, and returns how many calls there are. The error joins all
// damage.
func (f *File) Check(ctx context.Context) (calls int, err error) {
	if _, err := sealOf(f.db, f.codec); err != nil {
		return 0, f.explain(err)
	}
	faults, err := f.integrity(ctx, "PRAGMA integrity_check")
	if err != nil {
		return 0, f.explain(err)
	}
	if len(faults) == 0 { // else it may find no end
		if err := strayFlights(ctx, f.db); err != nil {
			faults = append(faults, err)
		}
	}
	if err := checkAudit(ctx, f.db, f.codec); err != nil {
		faults = append(faults, err)
	}
	damaged, err := checkBlocks(ctx, f.db, f.codec)
	if err != nil {
		return 0, f.explain(err)
	}
	faults = append(faults, damaged...)
	err = f.each(ctx, func(r *columns.Row) error {
		calls++
		if _, err := withResponse(ctx, f.db, f.codec, r); err != nil {
			faults = append(faults, err)
		}
		if _, err := entryOf(ctx, f.db, f.codec, r); err != nil {
			faults = append(faults, err)
		}
		return nil
	})
	if len(faults) > 0 {
		err = errors.Join(fmt.Errorf("store: %s is damaged: %w; %s", f.path, errors.Join(faults...), repairHint), err)
	}
	return calls, err
}

// integrity returns the faults that SQLite finds.
func (f *File) integrity(ctx context.Context, check string) (faults []error, err error) {
	rows, err := f.db.QueryContext(ctx, check)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var found string
		if err := rows.Scan(&found); err != nil {
			return nil, err
		}
		if found != "ok" {
			faults = append(faults, errors.New(found))
		}
	}
	return faults, rows.Err()
}

// each calls do with every call, the oldest first.
func (f *File) each(ctx context.Context, do func(r *columns.Row) error) error {
	if _, err := sealOf(f.db, f.codec); err != nil {
		return f.explain(err)
	}
	for seq := int64(0); ; {
		rows, err := f.db.QueryContext(ctx, "SELECT "+columns.OfCall+" FROM current WHERE seq > ? ORDER BY seq LIMIT 500", seq)
		if err != nil {
			return f.explain(err)
		}
		page, err := scan(rows)
		if err != nil || len(page) == 0 {
			return f.explain(err)
		}
		for _, r := range page {
			if r.Seq <= seq {
				return f.explain(fmt.Errorf("is damaged: call %d comes after call %d; %s", r.Seq, seq, repairHint))
			}
			seq = r.Seq
			if err := do(r); err != nil {
				return err
			}
		}
	}
}

// Calls calls do with every call, the oldest first, until it returns an error.
func (f *File) Calls(ctx context.Context, do func(*scheduler.Call) error) error {
	return f.each(ctx, func(r *columns.Row) error {
		c, err := withResponse(ctx, f.db, f.codec, r)
		if err != nil {
			return f.explain(err)
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

// Stats counts all calls. It looks for damage first: in a damaged tree it might find no end.
func (f *File) Stats(ctx context.Context) ([]Stat, error) {
	faults, err := f.integrity(ctx, "PRAGMA quick_check(1)")
	if err == nil && len(faults) > 0 {
		err = fmt.Errorf("is damaged: %w; %s", errors.Join(faults...), repairHint)
	}
	if err != nil {
		return nil, f.explain(err)
	}
	rows, err := f.db.QueryContext(ctx, "SELECT upstream, state, count(*), min(accepted_at) FROM current GROUP BY upstream, state ORDER BY upstream, state")
	if err != nil {
		return nil, f.explain(err)
	}
	defer rows.Close()
	var all []Stat
	for rows.Next() {
		var s Stat
		var oldest int64
		if err := rows.Scan(&s.Upstream, &s.State, &s.Calls, &oldest); err != nil {
			return nil, f.explain(err)
		}
		s.Oldest = columns.Instant(oldest)
		all = append(all, s)
	}
	return all, f.explain(rows.Err())
}
