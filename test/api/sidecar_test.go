// Package api tests the contract of the admin API from outside: the real binary, its document,
// and a validator of others.
package api

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

const document = "../../api/openapi.yaml"

var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "throttler-api")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "throttler")
	build := exec.Command("go", "build", "-o", binary, "./cmd/throttler")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the sidecar: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// launch runs a sidecar in front of a platform: /lost and /asked have no answer, and the rest
// is done. The configuration has a query about /asked, of which the platform says that it is
// done. It returns the URL of the admin API and the file of the configuration.
func launch(t *testing.T) (admin, file string) {
	t.Helper()
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/asked" || strings.HasPrefix(r.URL.Path, "/lost") {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, `{"paid":true}`)
	}))
	t.Cleanup(platform.Close)
	file = filepath.Join(t.TempDir(), "throttler.yaml")
	config := fmt.Sprintf(`admin: 127.0.0.1:0
store: %s
upstreams:
  pay:
    listen: 127.0.0.1:0
    url: %s
    numbers: {order: 'json("order")'}
    late: 100ms
    retry: {attempts: 1}
    resolve:
      - {when: 'path == "/asked"', method: GET, target: '"/orders"', headers: {app: 'header("app")'}, after: 1h, outcomes: [{when: 'status == 200', is: done}]}
    limits:
      - {name: app, per_key: 'header("app")', calls: 20, window: 1s}
      - {name: day, when: 'path == "/daily"', calls: 1, window: day, time_zone: Asia/Shanghai}
      - {name: heavy, when: 'path == "/heavy"', calls: 2, window: 1s, cost: 'int(header("cost"))'}
      - {name: parallel, concurrency: 4}
`, filepath.Join(t.TempDir(), "throttler.db"), platform.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	_, admin = serve(t, file)
	return admin, file
}

// serve runs a sidecar, and returns the URL of its admin API when it listens there.
func serve(t *testing.T, file string) (process *os.Process, admin string) {
	t.Helper()
	cmd := exec.Command(binary, "serve", "-c", file)
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found, ended, last := make(chan string, 1), make(chan struct{}), ""
	go func() { // until the process ends
		defer close(ended)
		address := regexp.MustCompile(`msg=listening key=admin addr=(\S+)`)
		addr := ""
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			last = lines.Text()
			if m := address.FindStringSubmatch(last); m != nil {
				addr = m[1]
			}
			if strings.Contains(last, "msg=ready") || strings.Contains(last, "this one waits for its end") {
				select {
				case found <- addr:
				default: // it was ready before
				}
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		cmd.Wait()
	})
	select {
	case addr := <-found:
		return cmd.Process, "http://" + addr
	case <-ended:
		t.Fatalf("the sidecar has ended: %s", last)
	}
	return nil, ""
}
