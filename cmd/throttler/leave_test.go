package main

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestClientLeaves: the record of a call whose client left before its slot says so, and so does the
// log at debug level. Nothing is sent.
func TestClientLeaves(t *testing.T) {
	url, arrived, answer := stall(t)
	close(answer)
	p := launch(t, "admin: 127.0.0.1:0\nlog: {level: debug}\nupstreams:\n  alipay:\n    listen: 127.0.0.1:0\n    url: "+url+
		"\n    durable: 'path == \"/durable\"'\n    max_wait: 2h\n    limits: [{name: app, calls: 1, window: 1h}]\nstore: "+t.TempDir()+"/throttler.db\n")
	p.submit(t, "/first")
	<-arrived
	for _, path := range []string{"/", "/durable"} {
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", p.data+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan struct{})
		go func() {
			defer close(left)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		p.until(t, "waiting", func() bool { return p.states(t)["waiting"] == 1 })
		id := between(p.body("/v1/calls?state=waiting"), `"id":"`, `"`)
		leave()
		<-left
		p.until(t, "cancelled", func() bool { return strings.Contains(p.body("/v1/calls/"+id), `"state":"cancelled"`) })
		if body := p.body("/v1/calls/" + id); !strings.Contains(body, `"reason":"gone"`) || !strings.Contains(body, `"attempts":[]`) {
			t.Errorf("%s: the record says %s", path, body)
		}
		out, err := p.throttler(t, "calls", "get", id).Output()
		if err != nil || !regexp.MustCompile(`(?m)^reason +its client left before it was executed$`).Match(out) {
			t.Errorf("%s: get: %v\n%s", path, err, out)
		}
		p.logs(t, `level=DEBUG msg="a call was dropped: its client has left, and it was not executed" call=`+id)
	}
	select {
	case <-arrived:
		t.Error("a call whose client had left was sent")
	default:
	}
}
