package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewMonitor returns the handler of a listener for probes and scrapes: health checks and
// metrics, to everybody, and nothing else. The arguments are as in [AdminConfig].
func NewMonitor(metrics *Metrics, ready func() error) http.Handler {
	probes := &Admin{AdminConfig: AdminConfig{Ready: ready}}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", probes.healthz)
	mux.HandleFunc("GET /readyz", probes.readyz)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if unknown, pattern := mux.Handler(r); pattern == "" {
			notFound(w, r, unknown)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
