package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/notify"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// password verifies requests with a header X-Password.
type password struct{}

func (password) Verify(r *upstream.Request, _ time.Time) (*notify.Notice, error) {
	switch r.Header.Get("X-Password") {
	case "late":
		return nil, notify.ErrLate
	case "right":
		return &notify.Notice{ID: r.Header.Get("X-Id"), Content: r}, nil
	}
	return nil, errors.New("it is not signed")
}

// bell is the listener of a rig, with a merchant.
func bell(t *testing.T, r *rig, merchant http.HandlerFunc, atOnce int) (n *Notifications, url string) {
	t.Helper()
	shop := httptest.NewServer(merchant)
	t.Cleanup(shop.Close)
	up, err := upstream.New(upstream.Config{URL: shop.URL, Timeout: time.Minute, InspectDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	order, err := upstream.Compile(`json("order")`, upstream.Key)
	if err != nil {
		t.Fatal(err)
	}
	n = NewNotifications(&Notifications{
		Scheduler: r.s, Upstream: "pay", Verifier: password{}, Forward: up, Numbers: map[string]*upstream.Expr{"order": order},
		Metrics: r.metrics, Log: slog.New(slog.NewTextHandler(r.logs, nil)),
	}, atOnce)
	return n, serve(t, n, n.Log).URL
}

// eventually fails the test if something does not hold within 15 s.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the call is not %s", what)
		}
	}
}

// TestNotifications: each result has its status, its count and, if the merchant has answered,
// the merchant's answer; forged ones never reach the merchant.
func TestNotifications(t *testing.T) {
	var atMerchant atomic.Int32
	broken := make(chan struct{})
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	_, url := bell(t, r, func(w http.ResponseWriter, r *http.Request) {
		atMerchant.Add(1)
		if r.URL.Path == "/break" {
			io.WriteString(w, "half of")
			http.NewResponseController(w).Flush()
			<-broken
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/hang-up" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusTeapot)
		io.Copy(w, r.Body)
	}, 4)
	for _, tt := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		want                     string
		merchant                 int32
		result                   string
	}{
		{"verified", "POST", "/n", "content-a", []string{"X-Password: right"}, 418, "content-a", 1, passedOn},
		{"forged", "POST", "/n", "content-b", []string{"X-Password: wrong"}, 401, "it is not signed", 0, unverified},
		{"late", "POST", "/n", "content-c", []string{"X-Password: late"}, 401, "5 minutes", 0, unverified},
		{"GET", "GET", "/n", "", []string{"X-Password: right"}, 405, "notifications come by POST", 0, refusedHere},
		{"a path of dots", "POST", "/content-d/%2e%2e/n", "", []string{"X-Password: right"}, 400, "cannot be passed on", 0, refusedHere},
		{"large", "POST", "/n", strings.Repeat("x", maxNotification+1), []string{"X-Password: right"}, 413, "more than 1048576 bytes", 0, refusedHere},
		{"the largest", "POST", "/n", strings.Repeat("x", maxNotification), []string{"X-Password: right"}, 418, "xxx", 1, passedOn},
		{"no answer", "POST", "/hang-up", "content-e", []string{"X-Password: right"}, 502, "send the notification again", 1, undelivered},
	} {
		before := atMerchant.Load()
		counted := counts(r)
		resp, text := send(t, tt.method, url+tt.path, tt.body, tt.header...)
		if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) || atMerchant.Load()-before != tt.merchant {
			t.Errorf("%s: %d %.100q, %d at the merchant's; want %d %q, %d", tt.name, resp.StatusCode, text, atMerchant.Load()-before, tt.status, tt.want, tt.merchant)
		}
		for _, result := range notificationResults {
			want := counted[result]
			if result == tt.result {
				want++
			}
			if got := counts(r)[result]; got != want {
				t.Errorf("%s: %v are %s, want %v", tt.name, got, result, want)
			}
		}
	}
	req, _ := http.NewRequest("POST", url+"/break", strings.NewReader("x"))
	req.Header.Set("X-Password", "right")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.ReadFull(resp.Body, make([]byte, len("half of")))
	close(broken)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a part of the merchant's answer came as a whole")
	}
	if strings.Contains(r.logs.String(), "content-") {
		t.Errorf("the log has a part of a notification:\n%s", r.logs)
	}
}

// counts returns the counters of notifications.
func counts(r *rig) map[string]float64 {
	all := make(map[string]float64)
	families, _ := r.metrics.Gather()
	for _, f := range families {
		if f.GetName() != "throttler_notifications_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					all[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	return all
}

// TestNotificationsAtOnce: so many are at the merchant at once, and one more is to come again.
func TestNotificationsAtOnce(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 2)
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	_, url := bell(t, r, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}, 2)
	ended := make(chan int, 2)
	for range 2 {
		go func() {
			resp, _ := send(t, "POST", url+"/n", "x", "X-Password: right")
			ended <- resp.StatusCode
		}()
		<-arrived
	}
	if resp, text := send(t, "POST", url+"/n", "x", "X-Password: right"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("one more: %d %s", resp.StatusCode, text)
	}
	close(release)
	for range 2 {
		if status := <-ended; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	go func() { <-arrived }()
	if resp, text := send(t, "POST", url+"/n", "x", "X-Password: right"); resp.StatusCode != 200 {
		t.Errorf("after them: %d %s", resp.StatusCode, text)
	}
}

// TestNotificationAsksOnce: a notice lets queries go once, and not before there is a call of
// unknown outcome.
func TestNotificationAsksOnce(t *testing.T) {
	var queries atomic.Int32
	u := scheduler.Upstream{
		Numbers: map[string]string{"order": `json("order")`},
		Resolve: []scheduler.Resolve{{Target: `"/query"`, After: time.Hour, Every: time.Hour, Outcomes: []upstream.Rule{{When: `body("paid") == true`, Is: upstream.Done}}}},
	}
	r := newRig(t, u, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/query" {
			queries.Add(1)
			io.WriteString(w, "{}")
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	n, url := bell(t, r, func(http.ResponseWriter, *http.Request) {}, 4)
	tell := func(id, order string, want int32) {
		t.Helper()
		send(t, "POST", url+"/n", fmt.Sprintf(`{"order":%q}`, order), "X-Password: right", "X-Id: "+id, "Content-Type: application/json")
		deadline := time.Now().Add(15 * time.Second)
		for queries.Load() < want && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if got := queries.Load(); got != want {
			t.Fatalf("%d queries after notice %s of %s, want %d", got, id, order, want)
		}
	}
	tell("1", "O1", 0) // before the call
	c, err := r.s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Method: "POST", Target: "/pay", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"order":"O1"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if c, err = r.s.Wait(t.Context(), c.ID); err != nil || c.State != scheduler.Unknown {
		t.Fatal(c, err)
	}
	eventually(t, "asked about", func() bool { return r.s.Notified("pay", map[string]string{"order": "O1"}) > 0 })
	eventually(t, "queried", func() bool { return queries.Load() > 0 })
	tell("1", "O1", 2)
	tell("1", "O1", 2)
	tell("2", "O9", 2)
	tell("3", "O1", 3)
	if n.asked.has("2") || !n.asked.has("3") {
		t.Error("a notice that lets no query go is remembered, or one that does is not")
	}
}

// TestRememberedIsBounded: the last ids are kept.
func TestRememberedIsBounded(t *testing.T) {
	var m remembered
	for i := range maxRemembered + 10 {
		m.add(fmt.Sprint(i))
		m.add(fmt.Sprint(i))
	}
	if m.has("9") || !m.has("10") || !m.has(fmt.Sprint(maxRemembered+9)) || len(m.ids) != maxRemembered || len(m.ring) != maxRemembered {
		t.Errorf("%d ids, %d in the ring", len(m.ids), len(m.ring))
	}
}

// TestNotificationWarningsAreBounded: strangers do not fill the log.
func TestNotificationWarningsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := &Notifications{Upstream: "pay", Log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 1000 {
			n.warn("refused", errors.New("forged"))
			time.Sleep(warnEvery / 100)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 10 || !strings.Contains(log.String(), "others_not_logged=99") {
			t.Errorf("%d lines:\n%s", lines, log.String())
		}
	})
}

// TestNotificationByteForByte: the merchant gets the method, the target, the headers and the
// body of a notification unchanged, and the platform the merchant's answer.
func TestNotificationByteForByte(t *testing.T) {
	var got string
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	_, url := bell(t, r, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, name := range []string{"Accept-Encoding", "User-Agent", "X-Password"} {
			r.Header.Del(name)
		}
		got = fmt.Sprintf("%s %s %q %q", r.Method, r.RequestURI, r.Header, body)
		h := w.Header()
		h["X-Odd"], h["Content-Type"], h["Date"] = []string{"a", "b"}, nil, nil
		w.WriteHeader(299)
		w.Write([]byte("ok\x00\xff"))
	}, 4)
	resp, text := send(t, "POST", url+"/%6E%2f;a?b=%e8&b=+&&c", "\x00a=%zz\xff\r\n", "X-Password: right", "X-A: 1", "X-A: 2", "Content-Type: x/y; charset=GBK")
	if want := fmt.Sprintf("POST %s %q %q", "/%6E%2f;a?b=%e8&b=+&&c", http.Header{"X-A": {"1", "2"}, "Content-Type": {"x/y; charset=GBK"}, "Content-Length": {"9"}}, "\x00a=%zz\xff\r\n"); got != want {
		t.Errorf("the merchant got\n%s\nwant\n%s", got, want)
	}
	if resp.StatusCode != 299 || text != "ok\x00\xff" || fmt.Sprint(resp.Header) != "map[Content-Length:[4] X-Odd:[a b]]" {
		t.Errorf("the platform got %d %v %q", resp.StatusCode, resp.Header, text)
	}
}
