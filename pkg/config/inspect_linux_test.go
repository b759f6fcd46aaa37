package config

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// closedText returns a configuration that names each kind of thing that a sidecar opens, all of
// them canaries, and the files among them.
func closedText(t *testing.T, addr string) (text []byte, dir string, files []string) {
	t.Helper()
	read, err := os.ReadFile("testdata/closed.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	text = []byte(strings.NewReplacer("DIR", dir, "ADDR", addr).Replace(string(read)))
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \"':,[]{}\n", r) }) {
		if strings.HasPrefix(word, dir+"/") {
			files = append(files, word)
		}
	}
	return text, dir, files
}

// TestInspectOpensNothing counts, with the kernel, the opens of all files that a configuration
// names. Its variables are not set and its users and programs not there, so that a look at them
// would be a fault.
func TestInspectOpensNothing(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	text, dir, files := closedText(t, socket.Addr().String())
	if len(files) < 14 {
		t.Fatalf("the configuration names %d files: %q", len(files), files)
	}
	if _, err := Inspect(text); err != nil {
		t.Errorf("without the files: %v", err)
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("canary"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opened := watch(t, dir)
	c, err := Inspect(text)
	if err != nil || len(c.Scheduler.Upstreams) != 6 || c.Scheduler.Upstreams["signed"].Limits[0].Calls != 20 {
		t.Errorf("with the files: %v", err)
	}
	if n := opened(); n > 0 {
		t.Errorf("%d opens", n)
	}
	if _, err := Parse(text); err == nil || opened() < 9 {
		t.Errorf("the count itself: Parse gives %v", err)
	}
	socket.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond))
	if c, err := socket.Accept(); err == nil {
		t.Errorf("a connection from %v", c.RemoteAddr())
	}
}

// TestInspectFindsTheMistakes: of each mistake that shows in a text, Inspect says the same as Parse.
func TestInspectFindsTheMistakes(t *testing.T) {
	archives, err := filepath.Glob("testdata/mistakes/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(err)
	}
	same, all := 0, 0
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			all++
			file, golden := archive.Files[i], string(archive.Files[i+1].Data)
			_, err := load(file.Name, file.Data, closed, nil)
			switch {
			case err != nil && err.Error()+"\n" == golden:
				same++
			case err != nil && strings.Contains(golden, "secret"), err == nil: // a fault of what a reference leads to
				t.Logf("%s: %v, and Parse says %s", file.Name, err, golden)
			default:
				t.Errorf("%s: %v, want %s", file.Name, err, golden)
			}
		}
	}
	if same < all-9 {
		t.Errorf("%d of %d mistakes are found", same, all)
	}
}

// TestInspectChecksForms: a text in place of a reference is a fault.
func TestInspectChecksForms(t *testing.T) {
	text, _, _ := closedText(t, "127.0.0.1:1")
	var want []string
	for _, form := range []string{"file:", "env:"} {
		text = []byte(strings.ReplaceAll(string(text), form, "hunter2"))
	}
	_, err := Inspect(text)
	faults, _ := err.(Errors)
	for _, f := range faults {
		want = append(want, f.Path)
		if strings.Contains(f.Error(), "hunter2") || !strings.Contains(f.Error(), "is no reference to a secret") {
			t.Error(f)
		}
	}
	if !slices.Equal(want, []string{
		"seal_key", "access.tls.key", "upstreams.signed.signer.key", "upstreams.signed.tls.certificates[0].key", "upstreams.signed.tls.key",
		"upstreams.signed.notifications.verify.keys[0]", "upstreams.signed.notifications.verify.keys[1]", "upstreams.signed.callbacks.shop.secret",
		"upstreams.wechat.signer.key", "upstreams.wechat.notifications.verify.keys[0]", "upstreams.wechat.notifications.verify.secret",
		"upstreams.token.signer.client_secret", "upstreams.v2.signer.key",
	}) {
		t.Errorf("faults of %q", want)
	}
}

// watch returns the number of opens in a directory since the last time it was asked.
func watch(t *testing.T, dir string) func() int {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_OPEN|syscall.IN_ACCESS); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		buffer := make([]byte, 64<<10)
		got, _ := syscall.Read(fd, buffer)
		for at := 0; at+syscall.SizeofInotifyEvent <= got; n++ {
			at += syscall.SizeofInotifyEvent + int(buffer[at+12]) + int(buffer[at+13])<<8
		}
		return n
	}
}
