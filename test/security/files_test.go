package security

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file is a configuration, and a text of the fault that check names.
type file struct{ name, yaml, fault string }

// whole is a configuration with lines at its top.
func whole(lines string) string {
	return lines + "\nupstreams: {a: {url: 'http://127.0.0.1:1'}}\n"
}

// of is a configuration with keys of an upstream.
func of(keys string) string {
	return "store: memory\nupstreams:\n  a: {url: 'http://127.0.0.1:1', " + keys + "}\n"
}

func url(u string) string { return "store: memory\nupstreams: {a: {url: " + quote(u) + "}}\n" }

func when(expression string) string {
	return of("limits: [{name: x, calls: 1, window: 1s, when: " + quote(expression) + "}]")
}

// grow is a YAML bomb: each anchor has ten of the one before.
func grow() string {
	b := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		b += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return b
}

var faulty = []file{
	{"empty", "", "upstreams"},
	{"bytes that are no text", "\x00\x01\xff\xfe", "yaml"},
	{"NUL in a text", whole("admin: \"127.0.0.1:0\x00\""), "yaml"},
	{"aliases that grow", whole(grow()), "yaml"},
	{"alias of itself", whole("log: &a {level: *a}"), "yaml"},
	{"100,000 brackets", whole("admin: " + strings.Repeat("[", 100_000)), "yaml"},
	{"300 maps in each other", whole("log: " + strings.Repeat("{a: ", 300) + "x" + strings.Repeat("}", 300)), "log"},
	{"key twice", whole("admin: 127.0.0.1:1\nadmin: 0.0.0.0:1"), "admin"},
	{"key twice, in another case", whole("admin: 127.0.0.1:1\nAdmin: 0.0.0.0:1"), "dmin"},
	{"unknown key", whole("adminn: 127.0.0.1:1"), "adminn"},
	{"unknown key of an upstream", of("urll: x"), "urll"},
	{"key that skips verification", of("tls: {insecure_skip_verify: true}"), "insecure_skip_verify"},
	{"tab as indentation", "upstreams:\n\ta: {}\n", ".yaml:2: is indented with a tab"},
	{"list instead of a map", "- a\n- b\n", "yaml"},
	{"tag of another language", whole("admin: !!python/object/apply:os.system ['id']"), ""},
	{"log level that is none", whole("log: {level: evil}"), "log.level"},
	{"admin at a port that is none", whole("admin: 127.0.0.1:99999"), "admin"},
	{"admin without a port", whole("admin: 127.0.0.1"), "admin"},
	{"two listeners at one address", "admin: 127.0.0.1:9999\nupstreams: {a: {url: 'http://h', listen: '127.0.0.1:9999'}}\n", "listen"},
	{"listener at a line break", of("listen: \"127.0.0.1:0\\r\\nx\""), "listen"},
	{"url of a file", url("file:///etc/passwd"), "url"},
	{"url of a script", url("javascript:alert(1)"), "url"},
	{"url without a host", url("http:///x"), "url"},
	{"url with a query", url("http://h/?a=b"), "url"},
	{"url with a fragment", url("http://h/#a"), "url"},
	{"url with a password", url("http://user:CANARY@h/"), "url"},
	{"url with a line break", url("http://h\r\nX: y/"), "url"},
	{"url of another scheme", url("gopher://h/"), "url"},
	{"name of an upstream with a slash", "upstreams: {'../a': {url: 'http://h'}}\n", "../a"},
	{"name of an upstream with a line break", "upstreams: {\"a\\nb\": {url: 'http://h'}}\n", "upstreams"},
	{"name of an upstream with markup", "upstreams: {'<b>': {url: 'http://h'}}\n", "upstreams"},
	{"host with a port", of("hosts: ['h:80']"), "hosts"},
	{"host with a scheme", of("hosts: ['http://h']"), "hosts"},
	{"host that stands for all", of("hosts: ['*']"), "hosts"},
	{"addresses that are none", of("addresses: ['10.0.0.0/99']"), "addresses"},
	{"timeout below zero", of("timeout: -1s"), "timeout"},
	{"timeout without a unit", of("timeout: 10"), "timeout"},
	{"size beyond int64", of("max_body: 99999999999999GiB"), "max_body"},
	{"size below zero", of("max_body: -1"), "max_body"},
	{"concurrency beyond all", of("concurrency: 2000000000000"), "concurrency"},
	{"concurrency below zero", of("concurrency: -1"), "concurrency"},
	{"weights below zero", of(`share_by: 'path', weights: {a: -1}`), "weights"},
	{"weights that are no number", of(`share_by: 'path', weights: {a: .nan}`), "weights"},
	{"weights without end", of(`share_by: 'path', weights: {a: .inf}`), "weights"},
	{"budget that is no number", of("retry: {budget: .nan}"), "budget"},
	{"limit of no calls", of("limits: [{name: x, calls: 0, window: 1s}]"), "calls"},
	{"limit of two billion calls", of("limits: [{name: x, calls: 2000000000, window: 1s}]"), "calls"},
	{"window of a nanosecond", of("limits: [{name: x, calls: 1, window: 1ns}]"), "window"},
	{"window of a thousand years", of("limits: [{name: x, calls: 1, window: 8784000h}]"), "window"},
	{"time zone outside its directory", of("limits: [{name: x, calls: 1, window: day, time_zone: ../../etc/passwd}]"), "time_zone"},
	{"two limits of one name", of("limits: [{name: x, calls: 1, window: 1s}, {name: x, calls: 1, window: 1s}]"), "name"},
	{"expression that does not end", when("method =="), "when"},
	{"expression of the system", when(`env("HOME") == ""`), "when"},
	{"expression of Go's own", when(`path.String() == ""`), "when"},
	{"expression of another type", when(`path`), "when"},
	{"expression with a pattern that is none", when(`path matches "("`), "when"},
	{"template that does not end", of("refusal: {body: '{{if'}"), "refusal"},
	{"template of the system", of("refusal: {body: '{{env \"HOME\"}}'}"), "refusal"},
	{"status of a refusal that is none", of("refusal: {status: 99}"), "refusal"},
	{"header of a refusal with a line break", of("refusal: {headers: {x: \"a\\r\\nb: c\"}}"), "refusal"},
	{"name of a header of a refusal", of("refusal: {headers: {\"x y\": a}}"), "refusal"},
	{"preset outside the presets", of("preset: ../../etc/passwd"), "preset"},
	{"callback to a file", of("callbacks: {c: {url: 'file:///etc/passwd', secret: env:SHOP}}"), "url"},
	{"secret in the clear", of("callbacks: {c: {url: 'http://h', secret: whsec_CANARYCANARYCANARYCANARYCANARY12}}"), "secret"},
	{"secret of a variable that is not set", of("callbacks: {c: {url: 'http://h', secret: env:NOT_SET_ANYWHERE}}"), "NOT_SET_ANYWHERE"},
	{"signer's key in the clear", of(`signer: {kind: alipay, key: "-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----"}`), "key"},
	{"signer of no program", of("signer: {kind: exec, command: []}"), "command"},
	{"signer that is none", of("signer: {kind: evil}"), "kind"},
	{"seal key in the clear", whole("seal_key: CANARYCANARYCANARYCANARYCANARYCANARYCANARYC="), "seal_key"},
	{"authority that is a directory", of("tls: {ca: /etc}"), "ca"},
	{"authority that is no certificate", of("tls: {ca: /etc/hostname}"), "ca"},
	{"certificate without its key", of("tls: {cert: /etc/hostname}"), "tls"},
}

// A key is a file in the place of a secret; make returns its path.
type key struct {
	name string
	make func(t *testing.T, dir string) string
}

func content(mode os.FileMode, text string) func(*testing.T, string) string {
	return func(t *testing.T, dir string) string {
		path := filepath.Join(dir, "key")
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // under any umask
			t.Fatal(err)
		}
		return path
	}
}

var sealKey = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("CANARY!!"), 4))

var keys = []key{
	{"readable by all", content(0o644, sealKey)},
	{"readable by the group", content(0o640, sealKey)},
	{"writable by all", content(0o602, sealKey)},
	{"too short", content(0o600, sealKey[:20])},
	{"too long", content(0o600, sealKey+sealKey)},
	{"no base64", content(0o600, strings.Repeat("CANARY%%", 6))},
	{"empty", content(0o600, "")},
	{"of 64 MB", content(0o600, strings.Repeat("CANARY!!", 8<<20))},
	{"missing", func(_ *testing.T, dir string) string { return filepath.Join(dir, "none") }},
	{"a directory", func(_ *testing.T, dir string) string { return dir }},
	{"a device without end", func(*testing.T, string) string { return "/dev/zero" }},
	{"a pipe that nothing writes to", func(t *testing.T, dir string) string {
		path := filepath.Join(dir, "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}},
	{"a link to a readable one", func(t *testing.T, dir string) string {
		to := content(0o644, sealKey)(t, dir)
		if err := os.Symlink(to, to+"-link"); err != nil {
			t.Fatal(err)
		}
		return to + "-link"
	}},
	{"a link to itself", func(t *testing.T, dir string) string {
		path := filepath.Join(dir, "loop")
		if err := os.Symlink(path, path); err != nil {
			t.Fatal(err)
		}
		return path
	}},
}

const victim = "the content of a file that is not the sidecar's"

// A place is a hostile directory of the store: make prepares it, and returns files that must
// stay as they are. The sidecar refuses it, or serves beside it.
type place struct {
	name   string
	make   func(t *testing.T, store string) (untouched []string)
	serves bool
}

// beside plants a link from a file beside the store to a victim.
func beside(suffix string) func(*testing.T, string) []string {
	return func(t *testing.T, store string) []string {
		path := filepath.Join(filepath.Dir(store), "victim")
		if err := os.WriteFile(path, []byte(victim), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, store+suffix); err != nil {
			t.Fatal(err)
		}
		return []string{path}
	}
}

func instead(text string) func(*testing.T, string) []string {
	return func(t *testing.T, store string) []string {
		if err := os.WriteFile(store, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{store}
	}
}

var places = []place{
	{"the store is a text", instead(victim), false},
	{"the store is a page of zeros", instead(strings.Repeat("\x00", 4096)), false},
	{"the store is half a header", instead("SQLite format 3\x00\x10\x00"), false},
	{"the store has a header and garbage", instead("SQLite format 3\x00" + strings.Repeat("\xa5", 8000)), false},
	{"the store is a directory", func(t *testing.T, store string) []string {
		if err := os.Mkdir(store, 0o700); err != nil {
			t.Fatal(err)
		}
		return nil
	}, false},
	{"the store is a pipe", func(t *testing.T, store string) []string {
		if err := syscall.Mkfifo(store, 0o600); err != nil {
			t.Fatal(err)
		}
		return nil
	}, false},
	{"the store is a link to itself", func(t *testing.T, store string) []string {
		if err := os.Symlink(store, store); err != nil {
			t.Fatal(err)
		}
		return nil
	}, false},
	{"the store is a link to a text", func(t *testing.T, store string) []string { return beside("")(t, store) }, false},
	{"the store has a second name", func(t *testing.T, store string) []string {
		if err := os.WriteFile(store, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(store, store+"-too"); err != nil {
			t.Fatal(err)
		}
		return nil
	}, false},
	{"its directory does not exist", func(t *testing.T, store string) []string {
		if err := os.Remove(filepath.Dir(store)); err != nil {
			t.Fatal(err)
		}
		return nil
	}, false},
	{"its log is a link, which is removed", beside("-wal"), true},
	{"its shared memory is a link", beside("-shm"), false},
	{"its reserve is a link, so that it has no room for new calls", beside("-reserve"), true},
	{"its journal is a link", beside("-journal"), true},
	{"its lock is a link", beside("-lock"), false},
}

// command runs the binary to its end, which must come.
func command(t *testing.T, dir string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("it does not end:\n%.2000s", out.String())
	}
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// The exit codes with which the binary refuses a file.
const (
	codeFault  = 1 // a fault of its own, as of a store that it cannot open
	codeConfig = 7 // faults in the configuration
)

// fails checks that the binary has refused a file with the exit code want, in few words and
// without a secret.
func fails(t *testing.T, out string, code, want int, fault string) {
	t.Helper()
	if code != want || !strings.Contains(strings.ToLower(out), strings.ToLower(fault)) {
		t.Errorf("exit code %d, want %d with %q:\n%.2000s", code, want, fault, out)
	}
	if strings.Contains(out, "CANARY") || strings.Contains(out, "panic") || strings.Contains(out, "goroutine ") {
		t.Errorf("it says:\n%.2000s", out)
	}
}

// TestFiles gives the sidecar hostile configurations, keys and stores. It refuses them, says
// why, and harms no other file.
func TestFiles(t *testing.T) {
	f := newFamily(t, "files", 73)
	for _, tt := range faulty {
		f.attack("configuration: "+tt.name, func(t *testing.T) {
			path := config(t, tt.yaml)
			out, code := command(t, filepath.Dir(path), "check", "-c", path)
			fails(t, out, code, codeConfig, tt.fault)
		})
	}
	for _, tt := range keys {
		f.attack("key: "+tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := config(t, whole("store: s.db\nseal_key: file:"+tt.make(t, dir)))
			out, code := command(t, dir, "check", "-c", path)
			fails(t, out, code, codeConfig, "seal_key")
		})
	}
	for _, tt := range places {
		f.attack("store: "+tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			store := filepath.Join(dir, "throttler.db")
			untouched := tt.make(t, store)
			before := make(map[string]string)
			for _, path := range untouched {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				before[path] = string(b)
			}
			path := config(t, whole("admin: 127.0.0.1:0\nstore: "+store))
			if tt.serves {
				s := startFile(t, path)
				s.alive(t)
				s.kill()
			} else {
				out, code := command(t, filepath.Dir(path), "serve", "-c", path)
				fails(t, out, code, codeFault, "throttler.db")
			}
			for path, text := range before {
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if b, _ := os.ReadFile(path); string(b) != text || info.Mode().Perm() != 0o644 {
					t.Errorf("%s is changed, its mode is %v", filepath.Base(path), info.Mode())
				}
			}
		})
	}
	running(t, f)
}

// running attacks a store while the sidecar has it.
func running(t *testing.T, f *family) {
	dir := t.TempDir()
	store := filepath.Join(dir, "throttler.db")
	path := config(t, whole("admin: 127.0.0.1:0\nstore: "+store))
	syscall.Umask(0) // that of a careless service
	defer syscall.Umask(0o022)
	s := startFile(t, path)
	f.attack("running: only its owner may read the store", func(t *testing.T) {
		all, err := os.ReadDir(dir)
		if err != nil || len(all) < 2 {
			t.Fatalf("%d files, %v", len(all), err)
		}
		for _, e := range all {
			info, err := e.Info()
			if err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has the mode %v, %v", e.Name(), info.Mode(), err)
			}
		}
	})
	f.attack("running: a second process on the file", func(t *testing.T) {
		out, code := command(t, dir, "serve", "-c", path)
		fails(t, out, code, codeFault, "throttler.db")
		s.alive(t)
	})
	f.attack("running: a second process by a link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link.db")
		if err := os.Symlink(store, link); err != nil {
			t.Fatal(err)
		}
		other := config(t, whole("admin: 127.0.0.1:0\nstore: "+link))
		out, code := command(t, dir, "serve", "-c", other)
		fails(t, out, code, codeFault, ".db")
		s.alive(t)
	})
	f.attack("running: a second process by the directory's link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "dir")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		other := config(t, whole("admin: 127.0.0.1:0\nstore: "+filepath.Join(link, "throttler.db")))
		out, code := command(t, dir, "serve", "-c", other)
		fails(t, out, code, codeFault, ".db")
		s.alive(t)
	})
	f.attack("running: the configuration becomes hostile", func(t *testing.T) {
		if err := os.WriteFile(path, []byte(whole(grow())), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := ask(t, "POST", s.admin, "/v1/config/reload", ""); r.status != 422 {
			t.Errorf("%+v", r)
		}
		if up := s.state(t, "a"); up != "up" {
			t.Errorf("the upstream is %s", up)
		}
		s.alive(t)
	})
}
