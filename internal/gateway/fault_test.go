package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

func base64Std(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// TestFaults tests each fault twice, with the call executed and not. The first call
// has the fault. The second, a repeat, gets the right answer, which shows the effect
// of the first.
func TestFaults(t *testing.T) {
	const delay = 20 * time.Millisecond
	for _, tt := range []struct {
		name  string
		fault Fault
		want  string // the SDK's result
		runs  bool   // executed even if Executed is false
	}{
		{"hang", Fault{Answer: Hang}, "context canceled", false},
		{"cut", Fault{Answer: Cut}, "EOF", false},
		{"truncated", Fault{Answer: Truncated}, "unexpected EOF", true},
		{"slow", Fault{Answer: Slow, Delay: delay}, "10000 ", true},
		{"late", Fault{Delay: delay}, "10000 ", true},
		{"page", Fault{Answer: HTML, Status: 502}, "invalid character '<' looking for beginning of value", false},
		{"status", Fault{Answer: SystemError, Status: 500}, "40004 ACQ.SYSTEM_ERROR", false},
		{"unknown", Fault{Answer: UnknownError}, "20000 isp.unknow-error", false},
		{"system error", Fault{Answer: SystemError}, "40004 ACQ.SYSTEM_ERROR", false},
		{"app limited", Fault{Answer: AppLimited}, "40005 isv.app-call-limited", false},
		{"method limited", Fault{Answer: MethodLimited}, "40005 isv.method-call-limited", false},
	} {
		for _, executed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/executed=%v", tt.name, executed), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g, srv := start(t, Config{Fault: func(method string, n int) Fault {
					if method != Refund || n > 1 {
						return Fault{}
					}
					f := tt.fault
					f.Executed = executed
					if f.Answer == Hang {
						cancel() // the client leaves
					}
					return f
				}})
				c := sdk(t, srv, g)

				sent := time.Now()
				rsp, err := c.TradeRefund(ctx, refundOf("t1", "r1", "1"))
				got := ""
				if err != nil {
					for got = err.Error(); errors.Unwrap(err) != nil; got = err.Error() {
						err = errors.Unwrap(err)
					}
				} else {
					got = string(rsp.Code) + " " + rsp.SubCode
				}
				if got != tt.want {
					t.Errorf("the SDK says %q, want %q", got, tt.want)
				}
				if took := time.Since(sent); took < tt.fault.Delay {
					t.Errorf("answered after %v", took)
				}

				srv.settle() // a client that leaves does not wait for the execution
				again, err := c.TradeRefund(t.Context(), refundOf("t1", "r1", "1"))
				if err != nil {
					t.Fatal(err)
				}
				if did := again.FundChange == "N"; did != (executed || tt.runs) {
					t.Errorf("the faulty call was executed: %v", did)
				}
				if tally := g.App(appID); len(tally.Arrivals) != 2 || tally.Limited != 0 {
					t.Errorf("%d arrivals, %d limited", len(tally.Arrivals), tally.Limited)
				}
			})
		}
	}
}

// settle waits until the handlers of the calls that have arrived have ended.
func (s *Server) settle() {
	s.handling.Lock()
	defer s.handling.Unlock()
}

// TestStatus shows the HTTP status of faults.
func TestStatus(t *testing.T) {
	g, srv := start(t, Config{Fault: func(string, int) Fault { return Fault{Answer: HTML, Status: 503} }})
	v, err := sdk(t, srv, g).URLValues(refundOf("t1", "r1", "1"))
	if err != nil {
		t.Fatal(err)
	}
	rsp, err := http.PostForm(srv.URL+Path, v)
	if err != nil {
		t.Fatal(err)
	}
	defer rsp.Body.Close()
	if b, err := io.ReadAll(rsp.Body); err != nil || rsp.StatusCode != 503 || string(b) != page {
		t.Errorf("%d %s, %v", rsp.StatusCode, b, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestClose ends a hanging call and waits for it; the gateway can be started again.
func TestClose(t *testing.T) {
	arrived := make(chan struct{})
	g, _ := start(t, Config{Fault: func(_ string, n int) Fault {
		if n > 1 {
			return Fault{}
		}
		close(arrived)
		return Fault{Answer: Hang}
	}})
	// Below the system's ephemeral ports, so that it stays free between the two starts.
	srv, err := Start(fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)), g)
	for tries := 0; err != nil; tries++ {
		if tries == 100 {
			t.Fatal(err)
		}
		srv, err = Start(fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)), g)
	}
	failed := make(chan error)
	c := sdk(t, srv, g)
	go func() {
		_, err := c.TradeRefund(t.Context(), refundOf("t1", "r1", "1"))
		failed <- err
	}()
	<-arrived
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("a call survived Close")
	}
	if err := srv.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}

	again, err := Start(srv.URL[len("http://"):], g)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if rsp, err := sdk(t, again, g).TradeRefund(t.Context(), refundOf("t1", "r1", "1")); err != nil || rsp.Code != "10000" {
		t.Errorf("after a restart: %+v, %v", rsp, err)
	}
	if n := len(g.App(appID).Arrivals); n != 2 {
		t.Errorf("%d arrivals over both lives", n)
	}
}

func TestLatency(t *testing.T) {
	g, srv := start(t, Config{Latency: 20 * time.Millisecond})
	sent := time.Now()
	if _, err := sdk(t, srv, g).TradeRefund(t.Context(), refundOf("t1", "r1", "1")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(sent); took < 20*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
}
