// Package server puts a scheduler behind HTTP: a data listener for each upstream,
// through which ordinary clients and SDKs send their requests, and the admin API
// with its metrics.
//
//	data := &server.Data{Scheduler: s, Upstream: "alipay", Admin: adminURL}
//	admin := server.NewAdmin(server.AdminConfig{Scheduler: s, …})
//	go server.New(data, log).Serve(listener)
//
// Requests and responses pass byte for byte. Throttler's own messages are
// Throttler-* headers or, where there is no response of the upstream, refusals in
// the shape that the platform's SDKs understand. Bodies of the admin API are types
// of internal/api; wire.go makes them from the scheduler's.
//
// # Not forwarded
//
// The header fields of one connection (RFC 9110, section 7.6.1), interim responses
// (1xx), and trailers in either direction. A request that cannot be parsed, such as
// the target /%zz or a head above 20 KiB, gets a short answer in plain text.
package server

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/http1"
)

// Time-outs of a client. None runs while its call waits for a slot. The least rate of a
// body is that of Kestrel (MinRequestBodyDataRate: 240 bytes a second, 5 s of grace), but
// in each period and not on average: a client that has sent much must go on.
const (
	headerTimeout = 10 * time.Second // to send a request's head
	pieceTimeout  = 5 * time.Second  // to send each piece of the body, or the rest
	pieceSize     = 5 * 240          // bytes
	bodyTimeout   = 30 * time.Second // to send the whole body
	writeTimeout  = 30 * time.Second // to take each chunk of the response
	chunkSize     = 16 << 10         // bytes
	idleTimeout   = 2 * time.Minute  // to send the next request
	maxHead       = 20 << 10         // bytes of a request's head, its first line included
)

// New returns a server for a [Data] or an [Admin]. No client can hold a connection
// for longer than the time-outs allow.
func New(h http.Handler, log *slog.Logger) *http1.Server {
	return &http1.Server{
		Handler:       claimHandler{h},
		HeaderTimeout: headerTimeout,
		WriteTimeout:  writeTimeout,
		IdleTimeout:   idleTimeout,
		MaxHeader:     maxHead,
		Rests:         rests,
		Context:       withConn,
		Log:           log,
	}
}

// claimHandler counts a connection as one with a whole request if there is no body to be
// read.
type claimHandler struct{ http.Handler }

func (h claimHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 && !connOf(r).claim() {
		panic(http.ErrAbortHandler)
	}
	h.Handler.ServeHTTP(w, r)
}
