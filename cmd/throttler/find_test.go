package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/api/client"
	"github.com/seed-30fe103d/throttler/internal/api"
)

var (
	findCalls  = flag.Int("find.calls", 1000, "finished calls of TestFindInAStore; there is a fifth of it waiting besides, and a two hundredth unknown")
	findProbes = flag.Int("find.probes", 50, "finds and lists of each kind and phase of TestFindInAStore")
)

// A till submits refunds to a sidecar by its admin API, each with two numbers of its own.
type till struct {
	*process
	finished, waiting int // refunds 0 to finished-1 end, and waiting ones follow
	client            http.Client
}

// state is that in which a refund stays.
func (f *till) state(n int) client.State {
	switch {
	case n >= f.finished && n < f.finished+f.waiting:
		return client.StateWaiting
	case n%200 == 7:
		return client.StateUnknown
	}
	return client.StateDone
}

// submit submits a refund, and reports whether it is accepted.
func (f *till) submit(n int) (id string, ok bool) {
	later, lost := "", ""
	switch f.state(n) {
	case client.StateWaiting:
		later = fmt.Sprintf(`,"not_before":%q`, time.Now().Add(12*time.Hour).Format(time.RFC3339))
	case client.StateUnknown:
		lost = "lost"
	}
	body := fmt.Sprintf(`{"order":"O-%d","refund":"R-%d","x":"%s"}`, n, n, lost)
	resp, err := f.client.Post(f.admin+"/v1/calls", "application/json", strings.NewReader(fmt.Sprintf(`{"upstream":"alipay","method":"POST","target":"/refunds","body":%q%s}`, body, later)))
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		return string(text), false
	}
	call, err := decode[api.Call](text)
	return call.ID, err == nil
}

// submitAll submits the refunds from first to last-1, 64 at once.
func (f *till) submitAll(t *testing.T, first, last int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for n := first + int(next.Add(1)) - 1; n < last; n = first + int(next.Add(1)) - 1 {
				if text, ok := f.submit(n); !ok {
					t.Errorf("refund %d is not accepted: %s", n, text)
					return
				}
			}
		})
	}
	wg.Wait()
}

// find finds a refund by the command, and returns its length.
func (f *till) find(t *testing.T, n int, number string) time.Duration {
	t.Helper()
	began := time.Now()
	out, messages, code := command(t, "find", fmt.Sprintf("%s-%d", number, n), "--addr", f.admin)
	took := time.Since(began)
	want := map[client.State]string{
		client.StateDone: "was executed by alipay", client.StateUnknown: "it may have been executed. A person has to decide", client.StateWaiting: "waits, and goes to alipay",
	}[f.state(n)]
	if first, _, _ := strings.Cut(out, "\n"); code != 0 || !strings.Contains(first, fmt.Sprintf("R-%d", n)) || !strings.Contains(first, want) {
		t.Errorf("refund %d, found by %s: exit code %d: %s%s", n, number, code, first, messages)
	}
	return took
}

// measure finds refunds by their numbers and lists calls, and prints the lengths of both.
func (f *till) measure(t *testing.T, phase string) {
	t.Helper()
	var finds, lists []time.Duration
	for i := range *findProbes {
		finds = append(finds, f.find(t, rand.IntN(f.finished+f.waiting), []string{"R", "O"}[i%2]))
	}
	for _, flags := range [][]string{nil, {"--state", "unknown"}, {"--state", "waiting"}, {"--needs-person"}, {"--upstream", "alipay", "--state", "done"}} {
		for range *findProbes / 5 {
			began := time.Now()
			out, messages, code := command(t, slices.Concat([]string{"calls", "list", "--addr", f.admin, "-o", "name"}, flags)...)
			lists = append(lists, time.Since(began))
			if code != 0 || out == "" {
				t.Errorf("calls list %v: exit code %d: %s", flags, code, messages)
			}
		}
	}
	t.Logf("%-30s find %s, calls list %s", phase, quantiles(finds), quantiles(lists))
}

// measurePages loads each page of the dashboard, and prints its time and its size.
func (f *till) measurePages(t *testing.T, id string) {
	t.Helper()
	for _, path := range []string{
		"/ui/", "/ui/decide", "/ui/calls", "/ui/calls?state=waiting", "/ui/calls?state=done&upstream=alipay", "/ui/calls?q=R-1", "/ui/calls/" + id,
		"/ui/limits", "/ui/upstreams/alipay/limits/app", "/ui/events", "/ui/refusals", "/ui/config", "/ui/audit", "/ui/system",
	} {
		var took []time.Duration
		size := 0
		for range *findProbes / 5 {
			began := time.Now()
			resp, err := f.client.Get(f.admin + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			took = append(took, time.Since(began))
			if size = len(body); err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("<h1>")) {
				t.Fatalf("%s: %d %v %.200s", path, resp.StatusCode, err, body)
			}
		}
		t.Logf("page %-40s %s, %d bytes", path, quantiles(took), size)
	}
}

func quantiles(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("p50 %v p99 %v", all[len(all)/2].Round(10*time.Microsecond), all[(len(all)-1)*99/100].Round(10*time.Microsecond))
}

// TestFindInAStore fills the store of the real binary, and finds refunds by throttler find: right after
// they have finished, after a restart, and after a kill -9 in the middle of submissions. It loads the
// pages of the dashboard beside them too.
func TestFindInAStore(t *testing.T) {
	platform := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte("lost")) {
			panic(http.ErrAbortHandler)
		}
	}))
	yaml := oneUpstream(filepath.Join(t.TempDir(), "t.db"), "alipay", platform, `    limits: [{name: app, calls: 1000000, window: 1s}]
    numbers: {order: 'json("order")', refund: 'json("refund")'}
    max_waiting: 2000000
    max_waiting_bytes: 4GiB
`)
	f := &till{process: launch(t, yaml), finished: *findCalls, waiting: *findCalls / 5}
	f.client.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	began := time.Now()
	f.submitAll(t, 0, f.finished+f.waiting)
	deadline := time.Now().Add(20 * time.Minute)
	for settled := false; !settled && !t.Failed(); time.Sleep(20 * time.Millisecond) {
		all, err := decode[api.Upstreams]([]byte(f.body("/v1/upstreams")))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the calls do not end: %+v %v", all, err)
		}
		u := all.Upstreams[0]
		settled = u.Waiting == f.waiting && u.Sending == 0
	}
	t.Logf("%d calls by the admin API in %v", f.finished+f.waiting, time.Since(began).Round(time.Second))

	var finds []time.Duration
	next := 10 * (f.finished + f.waiting) / 200 * 200 // beyond the others
	for range *findProbes {
		n := next
		next++
		id, ok := f.submit(n)
		if !ok {
			t.Fatal(id)
		}
		f.until(t, "done", func() bool { return string(f.call(id).State) == string(f.state(n)) })
		finds = append(finds, f.find(t, n, "R"))
	}
	t.Logf("%-30s find %s", "each right after its end", quantiles(finds))
	f.measure(t, "beside the others")
	id, _ := f.submit(next)
	f.measurePages(t, id)

	f.cmd.Process.Signal(syscall.SIGTERM)
	if code := f.exit(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	f.process = launch(t, yaml)
	f.measure(t, "after a restart")

	var last atomic.Int64 // refund that was accepted before the kill
	var wg sync.WaitGroup
	fresh := next/200*200 + 200
	wg.Go(func() {
		for n := fresh; ; n++ {
			if _, ok := f.submit(n); !ok {
				return
			}
			last.Store(int64(n))
		}
	})
	f.until(t, "busy", func() bool { return last.Load() >= int64(fresh+20) })
	f.kill9()
	wg.Wait()
	f.process = launch(t, yaml)
	for n := max(fresh, int(last.Load())-*findProbes); n <= int(last.Load()); n++ {
		f.found(t, n)
	}
	f.measure(t, "after kill -9")
}

// found checks that a refund that was accepted before a kill is there.
func (f *till) found(t *testing.T, n int) {
	t.Helper()
	if _, messages, code := command(t, "find", fmt.Sprintf("R-%d", n), "--addr", f.admin); code != 0 {
		t.Errorf("refund %d is not found after the kill: exit code %d: %s", n, code, messages)
	}
}
