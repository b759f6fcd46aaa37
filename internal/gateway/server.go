package gateway

import (
	"net"
	"net/http"
	"sync"
)

// A Server serves a handler on a TCP address until it is closed.
type Server struct {
	URL string // http://host:port, without a path

	http  *http.Server
	ended chan struct{} // closed when the accept loop has ended

	// Handlers hold handling for reading; Close locks it for writing and so waits for them.
	handling sync.RWMutex
	closed   bool // guarded by handling
}

// Start serves g at addr, a free port of 127.0.0.1 if addr is empty. A gateway keeps its
// counts when its server is closed, and may be started again, also at the same address.
func Start(addr string, g http.Handler) (*Server, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{URL: "http://" + l.Addr().String(), ended: make(chan struct{})}
	s.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handling.RLock()
		defer s.handling.RUnlock()
		if !s.closed {
			g.ServeHTTP(w, r)
		}
	})}
	go func() {
		defer close(s.ended)
		s.http.Serve(l) // ends with http.ErrServerClosed
	}()
	return s, nil
}

// Close closes the listener and all connections, also those with calls in progress,
// and returns when the handlers have ended.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.ended
	s.handling.Lock()
	defer s.handling.Unlock()
	s.closed = true
	return err
}
