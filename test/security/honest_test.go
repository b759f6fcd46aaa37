package security

import (
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

var speed = flag.Bool("speed", false, "fail if submissions that cannot be sent more than double the honest clients' 99th percentile")

// TestHonestClients submits 1,051 calls at the highest priority that cannot be sent, while 16
// clients send theirs. All of these are answered, and the upstream is up.
func TestHonestClients(t *testing.T) {
	const submissions, clients, calls, rounds = 1051, 16, 60, 4
	f := newFamily(t, "exhaustion", 2)
	for _, tt := range []struct {
		name, header string
		status       int // of a submission
	}{
		{"calls with a control byte beside honest ones", "a\u0001b", 400},
		{"calls with a head greater than the upstream takes beside honest ones", strings.Repeat("a", 8000), 202},
	} {
		f.attack(tt.name, func(t *testing.T) {
			cert, ca := certificate(t)
			var sent atomic.Int64
			up := frames{settings: []http2.Setting{{ID: http2.SettingMaxHeaderListSize, Val: 4096}}, serve: func(p *peer, stream uint32) bool {
				p.ok(stream)
				return true
			}}
			addr := listen(t, func(c net.Conn) { up.speak(c, cert, &sent) })
			s := start(t, fmt.Sprintf("  a: {listen: '127.0.0.1:0', url: 'https://%s', tls: {ca: %s}}\n", addr, ca))
			ask(t, "GET", s.data(t, "a"), "/next", "") // the upstream's settings have come
			body := `{"upstream":"a","method":"POST","path":"/evil","priority":100,"headers":{"X-Note":` + quote(tt.header) + `}}`
			var left atomic.Int64
			left.Store(submissions)
			round := func(attack bool) (took []time.Duration) {
				var mu sync.Mutex
				var wg, attackers sync.WaitGroup
				share := left.Load()
				if attack {
					share = max(0, left.Load()-submissions/(rounds/2)-1)
					attackers.Go(func() {
						for ; left.Load() > share; left.Add(-1) {
							if r, err := tryAsk("POST", s.admin, "/v1/calls", body); err != nil || r.status != tt.status {
								t.Errorf("a submission got %d, %v: %.300s", r.status, err, r.body)
							}
						}
					})
				}
				for range clients {
					wg.Go(func() {
						for n := 0; n < calls || attack && left.Load() > share; n++ {
							began := time.Now()
							r, err := tryAsk("GET", s.data(t, "a"), "/honest", "")
							if err != nil || r.status != 200 {
								t.Errorf("an honest client got %d, %v: %.300s", r.status, err, r.body)
								return
							}
							mu.Lock()
							took = append(took, time.Since(began))
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				attackers.Wait()
				if state := s.state(t, "a"); state != "up" {
					t.Errorf("the upstream is %s", state)
				}
				return took
			}
			var without, with []time.Duration
			for n := range rounds {
				if n%2 == 0 {
					without = append(without, round(false)...)
				} else {
					with = append(with, round(true)...)
				}
			}
			if left.Load() > 0 {
				t.Errorf("%d submissions were not made", left.Load())
			}
			if n := len(without) + len(with); int64(n) != sent.Load() || n < rounds*clients*calls {
				t.Errorf("%d honest calls were answered, and %d calls arrived", n, sent.Load())
			}
			if tt.status == 202 {
				until(t, "all submissions have failed", func() bool {
					return strings.Contains(ask(t, "GET", s.admin, "/metrics", "").body, fmt.Sprintf(`throttler_calls_ended_total{state="failed",upstream="a"} %d`, submissions))
				})
			}
			a, b := percentile(without, 99), percentile(with, 99)
			t.Logf("%d honest calls without: p50 %v, p99 %v; %d beside %d submissions: p50 %v, p99 %v; p99 %.2f times as long",
				len(without), percentile(without, 50), a, len(with), submissions, percentile(with, 50), b, float64(b)/float64(a))
			if *speed && b > 2*a {
				t.Errorf("the 99th percentile is %v, more than twice %v", b, a)
			}
			s.alive(t)
		})
	}
}

func percentile(all []time.Duration, p int) time.Duration {
	slices.Sort(all)
	return all[len(all)*p/100].Round(10 * time.Microsecond)
}
