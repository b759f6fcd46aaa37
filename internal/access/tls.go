package access

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// Secured returns a listener whose connections speak TLS by the configuration of the time
// at which they come; without one they speak none. The handshake comes with the first
// read, within the deadline of it.
func Secured(l net.Listener, config func() *tls.Config) net.Listener {
	return &securing{l, config}
}

type securing struct {
	net.Listener
	config func() *tls.Config
}

func (l *securing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	config := l.config()
	if config == nil {
		return c, nil
	}
	return &secure{tls.Server(c, config)}, nil
}

// secure is a connection with TLS.
type secure struct{ *tls.Conn }

// Read tells a client that speaks no TLS so in its own words, as net/http does.
func (c *secure) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil {
		io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nThis address speaks HTTPS, and the request came without TLS.\n")
	}
	return n, err
}

// SyscallConn lets the server look whether the client has left.
func (c *secure) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.NetConn().(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
