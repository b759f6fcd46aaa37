package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReload changes the configuration of a running sidecar in each of the three
// ways: permits that are out stay out, and a faulty configuration changes nothing.
func TestReload(t *testing.T) {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "paid") }))
	defer platform.Close()
	limits := func(calls int) string { return fmt.Sprintf("limits: [{name: app, calls: %d, window: 1h}]", calls) }
	p := start(t, platform.URL, limits(1))
	call := func(base string, want int) {
		t.Helper()
		req, _ := http.NewRequest("POST", base+"/pay", nil)
		req.Header.Set("Throttler-Max-Wait", "10s") // far less than the window
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
			t.Fatalf("status %d, want %d: %s", resp.StatusCode, want, body)
		}
	}
	first, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reload := func() (int, string) {
		t.Helper()
		resp, err := http.Post(p.admin+"/v1/config/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	with := func(calls int, more string) string {
		return strings.Replace(string(first), limits(1), limits(calls), 1) + more
	}

	call(p.data, 200)
	call(p.data, 429)
	other := "  other:\n    listen: 127.0.0.1:0\n    url: " + platform.URL + "\n"
	write(with(2, other))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.logs(t, "upstreams.alipay.limits[app].calls: 1 → 2")
	call(p.data, 200)
	call(p.data, 429)
	call(p.url(t, "upstreams.other.listen"), 200)
	p.logs(t, "upstreams.other.limits: there are none")

	write(strings.Replace(with(5, other), "window: 1h", "window: 1 hour", 1))
	if status, body := reload(); status != 422 || !strings.Contains(body, "The configuration cannot be taken") || !strings.Contains(body, "upstreams.alipay.limits[0].window") {
		t.Errorf("a faulty configuration: %d %s", status, body)
	}
	call(p.data, 429)
	if metrics := p.body("/metrics"); !strings.Contains(metrics, "\nthrottler_config_last_reload_successful 0\n") || !strings.Contains(metrics, "\nthrottler_build_info{version=\"devel\"} 1\n") {
		t.Errorf("after the faulty configuration: %s", metrics)
	}

	write(with(3, ""))
	p.logs(t, "upstreams.alipay.limits[app].calls: 2 → 3")
	call(p.data, 200)
	call(p.data, 429)
	if resp, err := http.Post(p.url(t, "upstreams.other.listen")+"/pay", "", nil); err == nil {
		resp.Body.Close()
		t.Errorf("an upstream that is gone still answers: %d", resp.StatusCode)
	}
	if status, body := reload(); status != 200 || !strings.Contains(body, `"changes":[]`) {
		t.Errorf("nothing has changed: %d %s", status, body)
	}
	if metrics := p.body("/metrics"); !strings.Contains(metrics, "\nthrottler_config_last_reload_successful 1\n") || !strings.Contains(metrics, "\nthrottler_config_last_reload_success_timestamp_seconds 1.") {
		t.Errorf("after a good reload: %s", metrics)
	}
	if n := strings.Count(p.log.String(), "upstreams.other.limits: there are none"); n != 1 {
		t.Errorf("warned %d times of the same upstream", n)
	}
}

// TestWatchInABusyDirectory: writes to other files of the directory hide no change of
// the file, and links to it are followed.
func TestWatchInABusyDirectory(t *testing.T) {
	p := start(t, "http://127.0.0.1:1", "limits: [{name: app, calls: 1, window: 1h}]")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				os.WriteFile(filepath.Join(filepath.Dir(p.file), "throttler.db-wal"), []byte(time.Now().String()), 0o600)
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	with := func(calls int) []byte {
		return bytes.Replace(text, []byte("calls: 1,"), fmt.Appendf(nil, "calls: %d,", calls), 1)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sees := func(change string) {
		t.Helper()
		p.logs(t, "upstreams.alipay.limits[app].calls: "+change)
	}

	must(os.WriteFile(p.file, with(2), 0o600))
	sees("1 → 2")

	// As Kubernetes mounts it: the file is a link into ..data, which is a link, and is replaced.
	dir := filepath.Dir(p.file)
	mount := func(version string, calls int) {
		t.Helper()
		must(os.Mkdir(filepath.Join(dir, version), 0o700))
		must(os.WriteFile(filepath.Join(dir, version, "throttler.yaml"), with(calls), 0o600))
		must(os.Symlink(version, filepath.Join(dir, "..new")))
		must(os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	}
	mount("..v1", 3)
	must(os.Symlink(filepath.Join("..data", "throttler.yaml"), p.file+".new"))
	must(os.Rename(p.file+".new", p.file))
	sees("2 → 3")
	mount("..v2", 4)
	sees("3 → 4")

	// The file at the end of the links, elsewhere, is edited in place.
	must(os.WriteFile(filepath.Join(dir, "..v2", "throttler.yaml"), with(5), 0o600))
	sees("4 → 5")
}

// TestReloadMovesListeners: an address moves from one upstream to another while
// Throttler listens there.
func TestReloadMovesListeners(t *testing.T) {
	name := func(name string) string {
		platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
		t.Cleanup(platform.Close)
		return platform.URL
	}
	one, two := name("one"), name("two")
	a, b := freeAddresses(t)
	p := start(t, one)
	reload := func(want int, upstreams ...string) string {
		t.Helper()
		text := "admin: " + strings.TrimPrefix(p.admin, "http://") + "\nstore: memory\nkeep_calls: 24h\nupstreams:\n" + strings.Join(upstreams, "")
		if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(p.admin+"/v1/config/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want {
			t.Fatalf("status %d, want %d: %s", resp.StatusCode, want, body)
		}
		return string(body)
	}
	upstream := func(name, listen, url string) string {
		return fmt.Sprintf("  %s: {listen: '%s', url: '%s'}\n", name, listen, url)
	}
	answers := func(addr, want string) {
		t.Helper()
		resp, err := http.Post("http://"+addr+"/pay", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); string(body) != want {
			t.Errorf("%s answers %q, want %q", addr, body, want)
		}
	}

	if changes := reload(200, upstream("one", a, one), upstream("two", b, two)); !strings.Contains(changes, `{"path":"keep_calls","before":"168h","after":"24h","kind":"changed","restart":true}`) {
		t.Errorf("a change that needs a restart: %s", changes)
	}
	answers(a, "one")
	answers(b, "two")
	if limits := p.body("/v1/limits?upstream=two"); !strings.Contains(limits, `"upstream":"two"`) || strings.Contains(limits, `"upstream":"one"`) {
		t.Errorf("limits of two: %s", limits)
	}
	reload(200, upstream("one", b, one), upstream("two", a, two)) // they change places
	answers(a, "two")
	answers(b, "one")
	reload(200, upstream("uno", b, one), upstream("two", a, two)) // one gets another name
	answers(b, "one")
	reload(200, upstream("two", a, two))
	p.until(t, "deaf at an address that is no upstream's any more", func() bool {
		c, err := net.Dial("tcp", b)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	_, port, _ := net.SplitHostPort(a)
	if said := reload(422, upstream("two", "0.0.0.0:"+port, two)); !strings.Contains(said, "Throttler itself listens at "+a) {
		t.Errorf("the same port in other words: %s", said)
	}
	answers(a, "two")
}

// freeAddresses returns two addresses without a listener. Their ports are below those
// that the system assigns, so they stay free.
func freeAddresses(t *testing.T) (a, b string) {
	t.Helper()
	var found []string
	for len(found) < 2 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		defer l.Close()
		found = append(found, l.Addr().String())
	}
	return found[0], found[1]
}

// TestReloadOfTheFileThatWasSeen: a reload that names the file that was compared takes no other one,
// by the API, the page and the command.
func TestReloadOfTheFileThatWasSeen(t *testing.T) {
	p := start(t, "http://127.0.0.1:1", "limits: [{name: app, calls: 10, window: 1s}]")
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(text))
	if diff := p.body("/v1/config/diff"); !strings.Contains(diff, `"file_sha256":"`+hash+`"`) {
		t.Errorf("the file %s: %s", hash, diff)
	}
	for file, want := range map[string]struct{ page, code int }{hash: {200, 0}, strings.Repeat("0", 64): {412, exitRefused}} {
		resp, err := http.PostForm(p.admin+"/ui/config", url.Values{"file": {file}})
		if err != nil {
			t.Fatal(err)
		}
		page, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want.page || (want.page == 412) != strings.Contains(string(page), "the file has changed since it was compared") {
			t.Errorf("the page with %s: %d %s", file, resp.StatusCode, page)
		}
		cmd := p.throttler(t, "reload", "--file", file)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want.code {
			t.Errorf("the command with %s: %d %s", file, got, out)
		}
	}
	if metrics := p.body("/metrics"); !strings.Contains(metrics, "throttler_config_last_reload_successful 1\n") {
		t.Errorf("a reload that was refused counts as one that failed")
	}
}
