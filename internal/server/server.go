// Package server puts a scheduler behind HTTP: a data listener for each upstream,
// through which ordinary clients and SDKs send their requests, and the admin API
// with its metrics.
//
//	data := &server.Data{Scheduler: s, Upstream: "alipay", Admin: adminAddr}
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
// the target /%zz or a head above 16 KiB, gets net/http's own answer in plain text.
package server

import (
	"io"
	"log/slog"
	"net/http"
	"time"
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
)

// New returns a server for a [Data] or an [Admin]. No client can hold a connection
// for longer than the time-outs allow.
func New(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           deadlineHandler{h},
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout, // from the head of each request; deadlineHandler restarts it
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnState:         track,
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// OPTIONS * is a request like others, and gets an answer of this package.
		DisableGeneralOptionsHandler: true,
	}
}

// deadlineHandler gives each write a deadline of its own: a response may begin late
// and be long, but the client must take it.
type deadlineHandler struct{ http.Handler }

func (h deadlineHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 && !connOf(r).claim() {
		panic(http.ErrAbortHandler)
	}
	out := &deadlineWriter{ResponseWriter: w, controller: http.NewResponseController(w)}
	if r.ContentLength != 0 {
		out.body = &requestBody{ReadCloser: r.Body}
		r = r.WithContext(r.Context()) // a copy: net/http keeps the body of its own request
		r.Body = out.body
	}
	h.Handler.ServeHTTP(out, r)
}

// A requestBody remembers whether it was read to its end.
type requestBody struct {
	io.ReadCloser
	ended bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

type deadlineWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	body       *requestBody // nil if the request has none
	since      time.Time    // of the deadline for writes
}

// extend lets the client take a chunk within writeTimeout, or up to a second less: to set a
// deadline costs more than the time of day.
func (w *deadlineWriter) extend() {
	if now := time.Now(); now.Sub(w.since) >= time.Second {
		w.since = now
		w.controller.SetWriteDeadline(now.Add(writeTimeout))
	}
}

// WriteHeader also closes the connection if the rest of the body would follow on it:
// otherwise net/http would read that first, and the client would wait for its answer.
func (w *deadlineWriter) WriteHeader(status int) {
	if w.body != nil && !w.body.ended {
		w.Header().Set("Connection", "close")
		w.controller.SetReadDeadline(time.Now().Add(bodyTimeout)) // net/http may read the rest
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *deadlineWriter) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		var m int
		w.extend()
		m, err = w.ResponseWriter.Write(p[n:min(n+chunkSize, len(p))])
		n += m
	}
	return n, err
}

// Unwrap is for [http.ResponseController].
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
