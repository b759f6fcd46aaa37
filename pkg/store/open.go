package store

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver: no C compiler, no server
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// oldest is the first SQLite without the bug that loses a reset of the log.
	oldest = 3_051_003
	// smallFile is the size up to which a file is checked at every start, bytes.
	smallFile = 8 << 20
)

// resolved returns the path without symbolic links: a file has one lock under all
// of its names.
func resolved(path string) (string, error) {
	file, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // the file is still to be made
	return filepath.Join(dir, filepath.Base(path)), err
}

// open locks and checks the file, and starts the writer and the sweeper. If it
// fails, release closes its connections and the lock.
func (d *DB) open(path string, o Options) error {
	var err error
	if d.note.file, err = openOwn(path + "-lock"); err != nil {
		return err
	}
	if ours, err := d.lock.TryLock(); err != nil {
		return err
	} else if !ours {
		return errInUse
	}
	if d.identity, err = identify(path, o.fileID); err != nil {
		return err
	}
	if err := syncDir(path); err != nil {
		return err
	}
	if err := d.connect(path, o); err != nil {
		return err
	}
	if o.raw == "" { // each commit is synced
		if err := checkLog(path); err != nil {
			return err
		}
	}
	if err := refuseForeign(path, o); err != nil {
		return err
	}
	from, restored, err := admit(path, o, d.identity.id, d.note)
	if err != nil {
		return err
	}
	if err := d.identity.file.Chmod(0o600); err != nil {
		return err
	}
	clean, err := prepare(d.writePool)
	if err != nil {
		return err
	}
	if err := verify(d.writePool, path, clean); err != nil {
		return err
	}
	if err := bindRows(d.writePool, d.codec, o.Seal); err != nil {
		return err
	}
	if d.reader.index, err = loadIndex(d.writePool, d.codec); err != nil {
		return err
	}
	return d.begin(path, o, from, restored)
}

// begin starts the reader, the writer and the sweeper of a file that has the schema.
func (d *DB) begin(path string, o Options, from origin, restored string) (err error) {
	if d.reader.queries, err = compile(d.reader.db); err != nil {
		return err
	}
	reserve := &reserve{path: path + "-reserve", size: o.reserve}
	if err := reserve.allocate(); err != nil {
		o.Log.Warn("the reserve of the store for a full disk cannot be made; nothing new is accepted until it can", "store", path, "error", err)
	}
	c, err := newConn(d.writePool, d.clock, d.codec)
	if err != nil {
		return err
	}
	c.file, c.restored, c.index = d.identity.id, restored, d.reader.index
	d.writer = newWriter(path, o, c, from, d.failure, d.identity, d.note, reserve)
	go d.writer.run()
	d.sweeper.Go((&sweeper{writer: d.writer, keepCalls: o.KeepCalls, keepKeys: o.KeepKeys, keepAudit: o.KeepAudit}).run)
	return nil
}

// syncDir syncs the directory of a file that may be new: its name must survive as well.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// connect opens a connection to write and up to four to read.
func (d *DB) connect(path string, o Options) error {
	sync := "_pragma=synchronous(FULL)"
	if o.raw != "" {
		sync = o.raw
	}
	var err error
	// A log that grew during a long read is cut to 64 MiB afterwards.
	write := "_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)&_pragma=journal_size_limit(67108864)&" + sync
	if d.writePool, err = sql.Open("sqlite", dsn(path, o.vfs, write)); err != nil {
		return err
	}
	d.writePool.SetMaxOpenConns(1)
	if d.reader.db, err = sql.Open("sqlite", dsn(path, o.vfs, "_pragma=query_only(1)")); err != nil {
		return err
	}
	d.reader.db.SetMaxOpenConns(4)
	d.reader.db.SetMaxIdleConns(4)
	return nil
}

func dsn(path, vfs, more string) string {
	const careful = "_pragma=trusted_schema(0)&_pragma=cell_size_check(1)&" // https://www.sqlite.org/security.html
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(2000)&" + careful + more
	if vfs != "" {
		dsn += "&vfs=" + vfs
	}
	return dsn
}

// prepare brings the file to this program's schema. It reports whether the last process closed the file.
func prepare(db *sql.DB) (clean bool, err error) {
	if sqlite3.SQLITE_VERSION_NUMBER < oldest {
		return false, fmt.Errorf("this program was built with SQLite %s, whose log can lose changes; it needs 3.51.3", sqlite3.SQLITE_VERSION)
	}
	var mode string
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil {
		return false, err
	}
	if mode != "wal" { // SQLite reports no error
		return false, fmt.Errorf("cannot be given a write-ahead log (its journal is %q): the disk fails, or another program has the file open", mode)
	}
	db.QueryRow("SELECT value FROM meta WHERE name = 'clean'").Scan(&clean) // false in a new file, and in a damaged one
	return clean, migrate(db)
}

// verify looks for damage in a small file, and in one that the last process did not
// close. The rows' checksums find the rest.
func verify(db *sql.DB, path string, clean bool) error {
	if info, err := os.Stat(path); err != nil || clean && info.Size() > smallFile {
		return err
	}
	var found string
	if err := db.QueryRow("PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("is damaged: %s; nothing was sent: %s", found, repairHint)
	}
	return nil
}
