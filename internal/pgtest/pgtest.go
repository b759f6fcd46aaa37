// Package pgtest starts PostgreSQL servers for tests: real ones, in a directory of their own, on a
// free port, with fsync.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNone says that no server is installed.
var ErrNone = errors.New("no PostgreSQL server is installed; run make postgres-tools, or name the directory of its programs in PG_BIN")

// A Server is a running PostgreSQL server.
type Server struct {
	dir, bin string
	port     int
	as       *syscall.Credential // nil: the user of the test
	cmd      *exec.Cmd
	log      *os.File
	names    atomic.Int64
}

// Start makes a server in a new directory and starts it. Close stops it and removes the directory.
func Start() (*Server, error) {
	return start(func(s *Server) error {
		return s.run("initdb", "--pgdata", s.data(), "--username", "throttler", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	})
}

// Standby starts a server that follows this one, by way of an address: that of this one, or of a proxy to it. Its commits
// do not wait for the standby before Synchronous.
func (s *Server) Standby(address string) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return start(func(standby *Server) error {
		return standby.run("pg_basebackup", "--pgdata", standby.data(), "--host", host, "--port", port, "--username", "throttler", "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	})
}

// Synchronous lets commits wait until a standby has them, from when one follows on.
func (s *Server) Synchronous() error {
	if err := s.exec("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if s.exec("SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')") == nil {
			return nil
		}
	}
	return errors.New("no synchronous standby follows within a minute")
}

// Promote makes a standby a server of its own.
func (s *Server) Promote() error { return s.exec("SELECT 1 / pg_promote()::int") }

// exec runs statements, each by itself.
func (s *Server) exec(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// start makes a server in a new directory and starts it.
func start(fill func(*Server) error) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin}
	if s.as, err = owner(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, err
	}
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if err := fill(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.Run(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// programs returns the directory of the newest server's programs.
func programs() (string, error) {
	if bin := os.Getenv("PG_BIN"); bin != "" {
		return bin, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		if path, err := exec.LookPath("initdb"); err == nil {
			return filepath.Dir(path), nil
		}
		return "", ErrNone
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

func version(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb)))) // 0: an odd name
	return n
}

// owner returns the user that runs the server: PostgreSQL refuses root.
func owner() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command returns a program of the server, to be run by its owner.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Setpgid: true}
	return cmd
}

// run runs a program to its end.
func (s *Server) run(name string, args ...string) error {
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// freePort returns a port that no connection is given while the server is down: it is below those that systems choose from.
func freePort() (port int, err error) {
	for range 100 {
		port = 20_000 + rand.N(12_000)
		l, failed := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if failed == nil {
			return port, l.Close()
		}
		err = failed
	}
	return 0, err
}

// Run starts the server, also again after Kill, at the same address, with some settings, as in
// "max_connections=20". It returns when the server takes connections.
func (s *Server) Run(settings ...string) error {
	if s.port == 0 {
		var err error
		if s.port, err = freePort(); err != nil {
			return err
		}
	}
	args := []string{"-D", s.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-k", s.dir, "-c", "max_connections=100", "-c", "shared_buffers=32MB"}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	var err error
	if s.log, err = os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	s.cmd = s.command("postgres", args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the server takes no connections: %w\n%s", err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// URL names a database of the server.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://throttler@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

// Address is the server's host and port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// NewDatabase makes an empty database and returns its URL.
func (s *Server) NewDatabase() (string, error) {
	name := fmt.Sprintf("test%d", s.names.Add(1))
	return s.URL(name), s.exec("CREATE DATABASE " + name)
}

// Kill ends all processes of the server at once, as a crash would: sessions are of its process group.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	s.cmd.Wait()
	s.cmd = nil
	s.log.Close()
}

// Close stops the server and removes its directory.
func (s *Server) Close() error {
	s.Kill()
	var err error
	for range 50 { // sessions that were killed may hold files for a moment
		if err = os.RemoveAll(s.dir); err == nil || !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
