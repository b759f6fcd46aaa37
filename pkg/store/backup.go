package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"modernc.org/sqlite"
)

// Backup writes a copy of the file as it is at one instant, also while another process
// changes it, to a new file that only its owner can read, and syncs it. A store is opened
// from it by Options.Restored alone. An error leaves no file.
func (f *File) Backup(ctx context.Context, to string) (err error) {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR|noFollow, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("store: %s: is there already, and a backup overwrites nothing; name another file", to)
	} else if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			os.Remove(to)
			err = fmt.Errorf("store: a backup of %s: %w", f.path, err)
		}
	}()
	if err := f.copyPages(ctx, to); err != nil {
		return explain(err)
	}
	if err := markBackup(ctx, to); err != nil {
		return err
	}
	return errors.Join(file.Sync(), syncDir(to))
}

// copyPages copies all pages, in one read of the file.
func (f *File) copyPages(ctx context.Context, to string) error {
	c, err := f.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Raw(func(raw any) error {
		b, err := raw.(interface {
			NewBackup(string) (*sqlite.Backup, error)
		}).NewBackup(dsn(to, "", ""))
		if err != nil {
			return err
		}
		_, err = b.Step(-1)
		return errors.Join(err, b.Finish())
	})
}

// markBackup makes a copy known as one: a file of an older program knows no file that it
// belongs to.
func markBackup(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", dsn(path, "", ""))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "INSERT OR REPLACE INTO meta VALUES ('file', ?)", isBackup)
	return errors.Join(err, db.Close())
}
