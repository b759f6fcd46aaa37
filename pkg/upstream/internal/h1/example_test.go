package h1_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream/internal/h1"
)

func ExamplePool() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) }))
	defer srv.Close()
	pool := &h1.Pool{MaxIdle: 10, IdleTimeout: time.Minute}
	defer pool.Close()

	for _, path := range []string{"/one", "/two"} {
		conn := pool.Take()
		if conn == nil {
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				panic(err)
			}
			if conn, err = pool.Add(c, nil); err != nil {
				panic(err)
			}
			fmt.Println("a new connection")
		}
		req, _ := http.NewRequest("GET", srv.URL+path, nil)
		resp, progress, err := conn.RoundTrip(context.Background(), req, 0)
		if err != nil {
			fmt.Println("sent:", progress.Wrote, err)
			return
		}
		body, _ := io.ReadAll(resp.Body) // gives the connection back
		fmt.Println(resp.Status, string(body))
	}
	// Output:
	// a new connection
	// 200 OK /one
	// 200 OK /two
}
