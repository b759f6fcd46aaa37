package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRunbook runs each block of docs/runbook.md, in order, against a real sidecar, and compares
// the output.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	upstream := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("lost")) {
			panic(http.ErrAbortHandler)
		}
	}))
	dir := t.TempDir()
	p := launch(t, `admin: 127.0.0.1:0
store: `+filepath.Join(dir, "t.db")+`
upstreams:
  partner:
    listen: 127.0.0.1:0
    url: `+upstream+`
    limits: [{name: refund, per_key: 'json("merchant")', calls: 2, window: 1h}]
    numbers: {order: 'json("order")', refund: 'json("refund")'}
`)
	refund := func(n int, merchant, state string) {
		body := fmt.Sprintf(`{"merchant":"%s","order":"O-%d","refund":"R-%[2]d","x":"%s"}`, merchant, n, map[bool]string{true: "lost"}[state == "unknown"])
		id := p.accepted(t, fmt.Sprintf(`{"upstream":"partner","method":"POST","target":"/refunds","body":%q}`, body))
		p.until(t, state, func() bool { return string(p.call(id).State) == state })
	}
	refund(1, "m1", "done")
	refund(2, "m1", "done")
	refund(3, "m1", "waiting")
	refund(9, "m2", "unknown")

	if err := os.Symlink(p.cmd.Path, filepath.Join(dir, "throttler")); err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```\n\\$ (throttler [^\n]*)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 15 {
		t.Fatalf("the page has %d blocks", len(blocks))
	}
	for _, b := range blocks {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", b[1])
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), addrVariable+"="+strings.TrimPrefix(p.admin, "http://"))
		out, err := cmd.CombinedOutput()
		got := string(out)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			got += fmt.Sprintf("[exit code %d]\n", exit.ExitCode())
		} else if err != nil {
			t.Fatal(err)
		}
		if got, want := sameEachRun(got), sameEachRun(b[2]); got != want {
			t.Errorf("%s prints\n%s\nthe page has\n%s", b[1], got, want)
		}
	}
}

// sameEachRun replaces ids, instants and durations of an output, and the width of its columns.
func sameEachRun(text string) string {
	for _, r := range []struct{ from, to string }{
		{`throttler (devel|v?[0-9][^ ,]*|[0-9a-f]{7,}[^ ,]*),`, "throttler VERSION,"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`, "ID"},
		{`(?m)^[0-9a-f]{16} `, "PAUSE "},
		{`"seq":\d+`, `"seq":SEQ`},
		{`127\.0\.0\.1:\d+`, "ADDR"},
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`, "TIME"},
		{`\d\d:\d\d:\d\d(\.\d+)?`, "TIME"},
		{`(TIME )?\((in )?[0-9hms.µn]+( ago)?\)`, "TIME"},
		{`\b(at|on) TIME`, "TIME"},
		{`(up|after|for) [0-9][0-9hms.µ]*s\b`, "$1 TIME"},
		{`in [0-9][0-9hms.µ]*s\b`, "TIME"},
		{`TIME TIME`, "TIME"},
		{` +`, " "},
		{`(?m) +$`, ""},
	} {
		text = regexp.MustCompile(r.from).ReplaceAllString(text, r.to)
	}
	return text
}
