package config

import (
	"net"
	"path/filepath"
	"strings"
)

// SocketPrefix begins the address of a Unix socket.
const SocketPrefix = "unix:"

// maxSocketPath is the longest path of a socket, in bytes: sun_path of unix(7) on the
// systems where it is shortest, without its end.
const maxSocketPath = 103

// admin converts the addresses of the admin API and of the monitor, and the rules of
// access.
func (f *file) admin(faults *faultList, c *Config, taken *[]listenAddress) {
	c.Access = f.Access.convert(faults)
	sockets := 0
	if len(f.Admin.all) == 0 {
		faults.add("admin", "is empty; give an address, such as %s", DefaultAdmin)
	}
	for i, addr := range f.Admin.all {
		path := c.AdminKey(i)
		if socket, ok := strings.CutPrefix(addr, SocketPrefix); ok {
			sockets++
			listenSocket(faults, path, socket, taken)
			continue
		}
		if filepath.IsAbs(addr) {
			faults.add(path, "%q is not a listen address; write %s", addr, SocketPrefix+addr)
			continue
		}
		a, ok := listen(faults, path, addr, taken)
		if !ok || a.loopback() {
			continue
		}
		switch {
		case c.Access == nil:
			faults.add(path, "%s can be reached from other hosts, and without access every one of them could do everything; write %s, or give access with tokens: throttler token new makes them", addr, net.JoinHostPort("127.0.0.1", a.port))
		case c.Access.TLS == nil:
			faults.warn(path, "%s can be reached from other hosts, and tokens come in the clear; give access.tls", addr)
		}
		if c.Access != nil && c.Access.Anyone != "" && c.Access.Anyone != "viewer" {
			faults.warn("access.anyone", "lets other hosts at %s act as %s without a token; write viewer, or leave it out", addr, c.Access.Anyone)
		}
	}
	if c.Access != nil && len(c.Access.Sockets) > 0 && sockets == 0 {
		faults.warn("access.sockets", "are not used: admin has no socket; add one, such as unix:/run/throttler/admin.sock")
	}
	if f.Monitor != "" {
		c.Monitor = string(f.Monitor)
		listen(faults, "monitor", c.Monitor, taken)
	}
}

// listenSocket checks the path of a socket, and adds it to the addresses taken.
func listenSocket(faults *faultList, path, socket string, taken *[]listenAddress) {
	a := listenAddress{path, filepath.Clean(socket), SocketPrefix}
	switch {
	case !filepath.IsAbs(socket):
		faults.add(path, "%q is not the path of a socket; write it from the root, such as unix:/run/throttler/admin.sock", SocketPrefix+socket)
	case len(socket) > maxSocketPath:
		faults.add(path, "the path of the socket has %d bytes, at most %d work; choose a shorter one", len(socket), maxSocketPath)
	default:
		a.take(faults, SocketPrefix+socket, taken)
	}
}
