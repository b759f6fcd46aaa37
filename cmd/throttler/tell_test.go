package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestStartTells: the log of a start names listeners, upstreams and the calls that the store
// had from the process before, without secrets.
func TestStartTells(t *testing.T) {
	url, arrived, _ := stall(t)
	file := filepath.Join(t.TempDir(), "throttler.db")
	yaml := "admin: 127.0.0.1:0\nstore: " + file + "\nupstreams:\n  alipay:\n    listen: 127.0.0.1:0\n    url: " + url + `/v1/CANARY
    limits:
      - {name: app, per_key: 'query("app")', calls: 1, window: 1h}
      - {name: refund, when: 'path == "/refund"', calls: 20, window: day}
      - {name: parallel, concurrency: 3}
`
	p := launch(t, yaml)
	for _, path := range []string{"/?app=a", "/?app=a", "/?app=a"} {
		resp, err := http.Post(p.admin+"/v1/calls", "application/json", strings.NewReader(`{"upstream":"alipay","method":"POST","path":"`+path+`","idempotency_key":"`+t.Name()+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		p.submit(t, path)
	}
	<-arrived
	pause := p.pause(t, `{"upstream":"alipay","for":"1h","reason":"maintenance"}`)
	for _, want := range []string{
		`msg=store file=` + regexp.QuoteMeta(file) + `\n`,
		`msg=upstream upstream=alipay url=` + regexp.QuoteMeta(url) + `/… listen=127.0.0.1:\d+ concurrency=1024 limits="app: 1 per 1h0m0s for each query\(\\"app\\"\), refund: 20 per day when path == \\"/refund\\", parallel: 3 at once"\n`,
		`msg="restored from the store" waiting=0 unknown=0 interrupted=0 pauses=0 idempotency_keys=0\n`,
	} {
		if !regexp.MustCompile(want).MatchString(p.log.String()) {
			t.Errorf("no %s in the log", want)
		}
	}
	if strings.Contains(p.log.String(), "CANARY") {
		t.Error("the log has a path of the upstream's URL")
	}
	p.cmd.Process.Signal(syscall.SIGKILL)
	p.exit(t)
	p = launch(t, yaml)
	if want := `msg="restored from the store" waiting=3 unknown=1 interrupted=1 pauses=1 idempotency_keys=1` + "\n"; !strings.Contains(p.log.String(), want) {
		t.Errorf("no %s in the log", want)
	}
	if text := p.body("/v1/pauses"); !strings.Contains(text, `[{"id":"`+pause.ID+`","upstream":"alipay","since":`) || !strings.Contains(text, `"by":"person","who":"loopback","reason":"maintenance"}]`) {
		t.Errorf("the pause of before: %+v; now %s", pause, text)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// TestInfoNamesTheStore: callers are told whether calls survive the process.
func TestInfoNamesTheStore(t *testing.T) {
	for store, want := range map[string]string{"memory": "memory", filepath.Join(t.TempDir(), "throttler.db"): "file"} {
		p := launch(t, "admin: 127.0.0.1:0\nstore: "+store+"\nupstreams: {pay: {url: 'http://127.0.0.1:1', listen: '127.0.0.1:0'}}\n")
		if info := p.body("/v1/info"); !strings.Contains(info, `"store":"`+want+`"`) {
			t.Errorf("store: %s: %s", store, info)
		}
	}
}
