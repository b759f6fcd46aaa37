package http1_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/http1"
)

// A server is closed, and its connections with it.
func Example() {
	s := &http1.Server{
		Handler:       http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.URL.Path) }),
		HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second, MaxHeader: 16 << 10,
		Log: slog.Default(),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()

	resp, err := http.Get("http://" + l.Addr().String() + "/world")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(body))

	s.Close()
	fmt.Println(<-ended)
	// Output:
	// 200 OK hello /world
	// http: Server closed
}
