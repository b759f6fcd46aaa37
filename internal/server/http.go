package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// How long a client may take, and what a piece is. While it waits for its slot no
// clock runs.
const (
	headerTimeout = 10 * time.Second // to send a request's head
	bodyTimeout   = 30 * time.Second // to send the whole body
	writeTimeout  = 30 * time.Second // to take each piece of the answer
	piece         = 16 << 10         // bytes
	idleTimeout   = 2 * time.Minute  // to send the next request
)

// New returns a server for a [Data] or an [Admin] in which no client can hold a
// connection for longer than these times.
func New(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           paced{h},
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout, // from the head of each request; paced begins it anew
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// OPTIONS * is a request like others, and gets an answer of ours.
		DisableGeneralOptionsHandler: true,
	}
}

// paced gives each write new time: an answer may be long in coming, and long, but
// somebody must take it.
type paced struct{ http.Handler }

func (p paced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.Handler.ServeHTTP(pacedWriter{w, http.NewResponseController(w)}, r)
}

type pacedWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
}

func (w pacedWriter) WriteHeader(status int) {
	w.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	w.ResponseWriter.WriteHeader(status)
}

func (w pacedWriter) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		var m int
		w.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
		m, err = w.ResponseWriter.Write(p[n:min(n+piece, len(p))])
		n += m
	}
	return n, err
}

// Unwrap is for [http.ResponseController].
func (w pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// smallBody is how many bytes of a body need no room: a connection's own buffers
// hold as much.
const smallBody = 4 << 10

// A take reserves room for bytes that are going to be read; release gives it back.
type take func(bytes int64) (release func(), err error)

// readBody reads a body of at most most bytes, having room for it. Where that
// fails the connection ends with the answer: what follows on it is still the body.
func readBody(w http.ResponseWriter, r *http.Request, most int64, take take) (body []byte, release func(), err error) {
	if r.ContentLength == 0 {
		return nil, func() {}, nil
	}
	deadline := http.NewResponseController(w)
	deadline.SetReadDeadline(time.Now().Add(bodyTimeout))
	if release, err = reserve(r.ContentLength, most, take); err == nil {
		if body, err = read(r, most); err != nil {
			release()
		}
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		return nil, nil, err
	}
	// A deadline that passes while the client waits would look as if it had gone.
	deadline.SetReadDeadline(time.Time{})
	return body, release, nil
}

// reserve makes room for a body of a length, below 0 if it is not known.
func reserve(length, most int64, take take) (release func(), err error) {
	switch {
	case length > most:
		return nil, tooLarge(most)
	case length < 0:
		return take(most)
	case length <= smallBody:
		return func() {}, nil
	}
	return take(length)
}

// read reads a body, and says what went wrong without the connection's addresses.
func read(r *http.Request, most int64) (body []byte, err error) {
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(r.Body, most+1))
	}
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &scheduler.Error{Reason: bodyTimedOut, Detail: fmt.Sprintf("the body did not come within %v", bodyTimeout)}
	case errors.As(err, &op):
		return nil, bad("the body broke off: %v", op.Err)
	case err != nil:
		return nil, bad("the body broke off: %v", err)
	case int64(len(body)) > most:
		return nil, tooLarge(most)
	}
	return body, nil
}

func tooLarge(most int64) error {
	return &scheduler.Error{Reason: scheduler.TooLarge, Detail: fmt.Sprintf("the body has more than %d bytes, the most that is taken here (max_body)", most)}
}

func bad(format string, args ...any) error {
	return &scheduler.Error{Reason: scheduler.BadRequest, Detail: fmt.Sprintf(format, args...)}
}
