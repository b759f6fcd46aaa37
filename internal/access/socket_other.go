//go:build !unix

package access

import (
	"errors"
	"net"
)

// ListenSocket fails: there are no Unix sockets.
func ListenSocket(string) (net.Listener, error) { return nil, errors.ErrUnsupported }
