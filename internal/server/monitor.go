package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
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
		if _, pattern := mux.Handler(r); pattern == "" {
			Refusal{}.write(w, &scheduler.Error{Reason: scheduler.NotFound, Detail: "the monitor has GET /healthz, /readyz and /metrics only; send other requests to the admin API"}, nil)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
