//go:build linux && (amd64 || arm64)

package store

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// disk is a layer between SQLite and the files. It sees which files were synced, and
// its syncs and writes can fail. Its shape is that of SQLite's C interface
// (https://sqlite.org/c3ref/vfs.html) on a 64-bit machine.
var disk = &faultyDisk{name: "faulty"}

type faultyDisk struct {
	name     string
	register sync.Once
	open     uintptr // of the real VFS
	mu       sync.Mutex
	methods  map[uintptr]uintptr // ours, by those of the real files
	paths    map[uintptr]string  // of open files

	// The plan of a test, which sets it before it opens a store.
	synced func(path string) // a file has been synced
	sync   func() fault      // asked at each sync
	write  func() fault      // asked at each write
}

type fault uint8

const (
	works   fault = iota
	fails         // and nothing is on disk
	written       // fails, but all is on disk
)

// methods is sqlite3_io_methods: a version and 18 functions, of which xClose is the
// first, xWrite the third and xSync the fifth.
type methods struct {
	_                  [1]uintptr
	close, _, write, _ uintptr
	sync               uintptr
	_                  [13]uintptr
}

// vfs is the beginning of sqlite3_vfs: three numbers, pNext, zName, pAppData, xOpen.
type vfs struct {
	_             [2]uintptr
	next, name, _ uintptr
	open          uintptr
}

// vfsSize is that of all of sqlite3_vfs: 22 words.
const vfsSize = 22 * 8

// at is a pointer into SQLite's memory, which Go neither owns nor moves.
func at[T any](p uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&p))) }

type (
	openFunc  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	syncFunc  = func(tls *libc.TLS, file uintptr, flags int32) int32
	writeFunc = func(tls *libc.TLS, file, buffer uintptr, n int32, offset int64) int32
	closeFunc = func(tls *libc.TLS, file uintptr) int32
)

// pointer and call convert between functions and their form in C's structures.
func pointer[F any](f *F) uintptr { return *(*uintptr)(unsafe.Pointer(f)) }

func call[F any](p uintptr) F { h := struct{ uintptr }{p}; return *(*F)(unsafe.Pointer(&h)) }

var (
	ourOpen  openFunc  = diskOpen
	ourSync  syncFunc  = diskSync
	ourWrite writeFunc = diskWrite
	ourClose closeFunc = diskClose
)

// use registers the disk with SQLite, and resets its plan.
func (d *faultyDisk) use() {
	d.register.Do(func() {
		d.methods, d.paths = make(map[uintptr]uintptr), make(map[uintptr]string)
		tls := libc.NewTLS()
		defer tls.Close()
		real := sqlite3.Xsqlite3_vfs_find(tls, 0)
		ours := libc.Xmalloc(tls, vfsSize)
		libc.Xmemcpy(tls, ours, real, vfsSize)
		name, _ := libc.CString(d.name)
		v := at[vfs](ours)
		d.open, v.name, v.next, v.open = v.open, name, 0, pointer(&ourOpen)
		sqlite3.Xsqlite3_vfs_register(tls, ours, 0)
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced, d.sync, d.write = nil, nil, nil
}

// fail sets the plan for each sync from now on.
func (d *faultyDisk) fail(sync func() fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sync = sync
}

func diskOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := call[openFunc](disk.open)(tls, vfs, name, file, flags, out)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	disk.mu.Lock()
	defer disk.mu.Unlock()
	real := *at[uintptr](file)
	ours := disk.methods[real]
	if ours == 0 {
		ours = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods{})))
		m := at[methods](ours)
		*m = *at[methods](real)
		m.sync, m.write, m.close = pointer(&ourSync), pointer(&ourWrite), pointer(&ourClose)
		disk.methods[real] = ours
	}
	*at[uintptr](file) = ours
	if name != 0 {
		disk.paths[file] = libc.GoString(name)
	}
	return rc
}

// real returns the methods of the file underneath.
func (d *faultyDisk) real(file uintptr) *methods {
	d.mu.Lock()
	defer d.mu.Unlock()
	ours := *at[uintptr](file)
	for real, m := range d.methods {
		if m == ours {
			return at[methods](real)
		}
	}
	panic("a file of another disk")
}

func (d *faultyDisk) plan() (synced func(string), sync, write func() fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced, d.sync, d.write
}

func diskSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	disk.mu.Lock()
	path := disk.paths[file]
	disk.mu.Unlock()
	synced, sync, _ := disk.plan()
	does := works
	if sync != nil {
		does = sync()
	}
	if does != fails && synced != nil {
		synced(path)
	}
	if does != works {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	return sqlite3.SQLITE_OK
}

func diskWrite(tls *libc.TLS, file, buffer uintptr, n int32, offset int64) int32 {
	if _, _, write := disk.plan(); write != nil && write() != works {
		return sqlite3.SQLITE_FULL
	}
	return call[writeFunc](disk.real(file).write)(tls, file, buffer, n, offset)
}

func diskClose(tls *libc.TLS, file uintptr) int32 {
	m := disk.real(file)
	disk.mu.Lock()
	delete(disk.paths, file)
	disk.mu.Unlock()
	return call[closeFunc](m.close)(tls, file)
}

// A shadow has the files as a power cut would leave them: as of their last sync.
type shadow struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (s *shadow) take(path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return // a directory
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = b
}

// leave writes the files into a directory.
func (s *shadow) leave(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, b := range s.files {
		if _, err := os.Stat(path); err != nil || strings.HasSuffix(path, "-shm") {
			continue // deleted, or not a file of the disk
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
