package admin_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/admin"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A program serves the dashboard beside its own pages. Its middleware has checked the password; the role
// is its own decision.
func Example() {
	var pay scheduler.Upstream
	pay.URL, pay.Limits = "https://pay.example", []scheduler.Limit{{Name: "app", Calls: 100, Window: time.Second}}
	cfg := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": pay}}
	observer := admin.Observe(&cfg)
	s, err := scheduler.New(cfg)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	h, err := admin.New(s, admin.Options{
		Observer: observer, Prefix: "/ops/throttler", Name: "PROD pay",
		Caller: func(r *http.Request) (name, role string, ok bool) {
			name, _, ok = r.BasicAuth()
			return name, "operator", ok
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/throttler/", h)
	site := httptest.NewServer(mux)
	defer site.Close()
	defer h.Close()

	request, err := http.NewRequest("GET", site.URL+"/ops/throttler/", nil)
	if err != nil {
		panic(err)
	}
	request.SetBasicAuth("ada", "…")
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	fmt.Println(resp.Request.URL.Path, resp.StatusCode, err)
	for _, part := range []string{"PROD pay", "ada · operator", `href="/ops/throttler/ui/limits"`} {
		fmt.Println(strings.Contains(string(page), part))
	}
	// Output:
	// /ops/throttler/ui/ 200 <nil>
	// true
	// true
	// true
}
