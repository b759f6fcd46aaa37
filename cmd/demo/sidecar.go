package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// configYAML is the sidecar's configuration: gateway URL, and the two limits as calls
// and window. The sidecar takes free ports and logs them.
const configYAML = `admin: 127.0.0.1:0
store: memory
upstreams:
  alipay:
    listen: 127.0.0.1:0
    url: %s
    preset: alipay
    max_wait: 60s
    limits:
      - {name: app,    per_key: 'param("app_id")', calls: %d, window: %v}
      - {name: refund, when: 'param("method") == "alipay.trade.refund"', per_key: 'param("app_id")', calls: %d, window: %v}
`

const (
	readyTimeout = 15 * time.Second // from start to readyz
	stopTimeout  = 15 * time.Second // from SIGTERM to exit
)

// A sidecar is a running "throttler serve" in a temporary directory of its own.
type sidecar struct {
	url string // of its data listener

	admin  string // URL
	dir    string // config and log
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended, after waited was set
	waited error
}

// startSidecar writes the config for s, shows it, and starts the binary; it returns when
// the sidecar is ready.
func startSidecar(ctx context.Context, binary string, s scenario, gatewayURL string, out io.Writer) (_ *sidecar, err error) {
	dir, err := os.MkdirTemp("", "throttler-demo-")
	if err != nil {
		return nil, err
	}
	c := &sidecar{dir: dir, exited: make(chan struct{})}
	config := fmt.Sprintf(configYAML, gatewayURL,
		s.app.Calls, s.app.Window, s.refund.Calls, s.refund.Window)
	fmt.Fprint(out, indent(config))

	if err := c.start(binary, config); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.ready(ctx); err != nil {
		c.stop() // err has the log, which says more than the exit code
		return nil, err
	}
	return c, nil
}

// start starts the process with its output in the log file.
func (c *sidecar) start(binary, config string) error {
	file := filepath.Join(c.dir, "throttler.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	binary, err = filepath.Abs(binary)
	if err != nil {
		return err
	}
	c.cmd = exec.Command(binary, "serve", "-c", file)
	c.cmd.Dir = c.dir
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "THROTTLER_") // these would override the config
	})
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go func() {
		c.waited = c.cmd.Wait()
		close(c.exited)
	}()
	return nil
}

// listening matches the log line with the address of a key's listener.
var listening = regexp.MustCompile(`msg=listening key=(\S+) addr=(\S+)`)

// findListeners reads the addresses of the sidecar's listeners from the log; ok if it is ready.
func (c *sidecar) findListeners() (ok bool) {
	log, err := os.ReadFile(c.logFile())
	return err == nil && strings.Contains(string(log), "msg=ready") && c.readAddresses()
}

// readAddresses reads the addresses of the sidecar's listeners from the log; ok if both are known.
func (c *sidecar) readAddresses() (ok bool) {
	log, err := os.ReadFile(c.logFile())
	if err != nil {
		return false
	}
	for _, line := range listening.FindAllStringSubmatch(string(log), -1) {
		switch line[1] {
		case "admin":
			c.admin = "http://" + line[2]
		case "upstreams.alipay.listen":
			c.url = "http://" + line[2]
		}
	}
	return c.admin != "" && c.url != ""
}

// ready waits until the sidecar is ready.
func (c *sidecar) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if c.findListeners() {
			body, err := c.get(ctx, "/readyz")
			if err == nil {
				body.Close()
			}
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond): // between two polls
		case <-c.exited:
			return fmt.Errorf("the sidecar ended at once (%v); its log:\n%s", c.cmd.ProcessState, c.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the sidecar is not ready: %w; its log:\n%s", ctx.Err(), c.logTail())
		}
	}
}

// stop ends the sidecar, waits for its end, and removes its directory.
func (c *sidecar) stop() error {
	defer os.RemoveAll(c.dir)
	c.cmd.Process.Signal(syscall.SIGTERM) // an error does not matter: the process may have ended
	select {
	case <-c.exited:
	case <-time.After(stopTimeout):
		c.cmd.Process.Kill()
		<-c.exited
	}
	if c.waited != nil {
		return fmt.Errorf("the sidecar ended with %w; its log:\n%s", c.waited, c.logTail())
	}
	return nil
}

// status returns the sidecar's waiting calls for the line of progress; empty if the API
// does not answer.
func (c *sidecar) status(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	body, err := c.get(ctx, "/v1/upstreams")
	if err != nil {
		return ""
	}
	defer body.Close()
	var all struct{ Upstreams []upstream }
	if json.NewDecoder(body).Decode(&all) != nil || len(all.Upstreams) != 1 {
		return ""
	}
	return all.Upstreams[0].String()
}

// An upstream is the state of an upstream in the admin API.
type upstream struct {
	Name             string
	Waiting, Sending int
	ETA              time.Time // of the last waiting call
}

func (u upstream) String() string {
	s := fmt.Sprintf(", %d waiting, %d sending", u.Waiting, u.Sending)
	if left := time.Until(u.ETA); u.Waiting > 0 && left > 0 {
		s += fmt.Sprintf(", the last goes in %.1fs", left.Seconds())
	}
	return s
}

// get returns the body of a 200 from the admin API.
func (c *sidecar) get(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.admin+path, nil)
	if err != nil {
		return nil, err
	}
	rsp, err := adminClient.Do(r)
	if err != nil {
		return nil, err
	}
	if rsp.StatusCode != http.StatusOK {
		rsp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, rsp.Status)
	}
	return rsp.Body, nil
}

// adminClient keeps no connection open: an open one would delay the sidecar's stop.
var adminClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (c *sidecar) logFile() string { return filepath.Join(c.dir, "throttler.log") }

// logTail returns the end of the log, indented.
func (c *sidecar) logTail() string {
	b, err := os.ReadFile(c.logFile())
	if err != nil {
		return indent(err.Error())
	}
	return indent(string(b[max(0, len(b)-4096):]))
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
}
