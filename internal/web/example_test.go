package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/web"
)

// The pages ask an API, here one that knows one call.
func Example() {
	api := http.NewServeMux()
	api.HandleFunc("GET /v1/info", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"version":"1.0","caller":{"name":"oncall","role":"viewer","scopes":["read_own","read"]}}`)
	})
	api.HandleFunc("GET /v1/calls/7", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"id":"7","upstream":"alipay","state":"done","numbers":{"order":"20261122077","refund":"R-1"},"attempts":[]}`)
	})
	pages := web.New(web.Config{API: api})
	defer pages.Close()

	w := httptest.NewRecorder()
	pages.ServeHTTP(w, httptest.NewRequest("GET", "/ui/calls/7", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "<h1>") {
			fmt.Print(line)
		}
	}
	// Output: <h1>Refund R-1 of order 20261122077</h1>
}
