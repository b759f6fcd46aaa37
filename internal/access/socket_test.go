//go:build linux

package access

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// TestListenSocket: the mode of a socket, and what may be at its path before.
func TestListenSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	before := unix.Umask(0)
	defer unix.Umask(before)
	l, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if after := unix.Umask(0); after != 0 {
		t.Errorf("the umask is %o afterwards", after)
	}
	if _, err := ListenSocket(path); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("a live socket: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as after kill -9
	l.Close()
	l, err = ListenSocket(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	l.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays after its end: %v", err)
	}
	if err := os.WriteFile(path, []byte("money"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(path); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "money" {
		t.Error("the file was touched")
	}
	if _, err := ListenSocket(filepath.Join(path, "none", "x.sock")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}

// TestSocketCallers: callers by the user and by a group of the process at the other end.
func TestSocketCallers(t *testing.T) {
	l, err := ListenSocket(filepath.Join(t.TempDir(), "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(WithConn(context.Background(), wrapped{conn}))
	for name, tt := range map[string]struct {
		rules *config.Access
		want  Caller
	}{
		"no access":      {nil, Caller{me.Username, Admin, "socket"}},
		"user":           {&config.Access{Sockets: []config.Socket{{ID: uid, Role: "operator"}}}, Caller{me.Username, Operator, "socket"}},
		"group":          {&config.Access{Sockets: []config.Socket{{Group: true, ID: gid, Role: "viewer"}}}, Caller{me.Username, Viewer, "socket"}},
		"first":          {&config.Access{Sockets: []config.Socket{{ID: uid + 1, Role: "admin"}, {Group: true, ID: gid, Role: "viewer"}, {ID: uid, Role: "admin"}}}, Caller{me.Username, Viewer, "socket"}},
		"another user":   {&config.Access{Sockets: []config.Socket{{ID: uid + 1, Role: "admin"}}}, Caller{}},
		"another group":  {&config.Access{Sockets: []config.Socket{{Group: true, ID: 4_000_000_000, Role: "admin"}}}, Caller{}},
		"anyone, beside": {&config.Access{Anyone: "viewer", Sockets: []config.Socket{{ID: uid + 1, Role: "admin"}}}, Caller{Role: Viewer, Via: "anyone"}},
	} {
		admitted, leave, err := NewGuard(tt.rules).Admit(r, Read)
		if (err == nil) != (tt.want != Caller{}) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err == nil {
			if got := From(admitted.Context()); got != tt.want {
				t.Errorf("%s: the caller is %+v, want %+v", name, got, tt.want)
			}
			leave()
		}
	}
	r.Host = "anything" // no browser reaches a socket
	if err := NewGuard(nil).Addressed(r); err != nil {
		t.Error(err)
	}
}

// wrapped is a connection as the server hands it on.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }
