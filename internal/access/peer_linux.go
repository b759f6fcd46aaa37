package access

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerCredentials returns the user and the group of the process that has connected to a
// socket: SO_PEERCRED of unix(7).
func peerCredentials(c *net.UnixConn) (uid, gid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	control := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if control != nil {
		return 0, 0, control
	}
	if err != nil {
		return 0, 0, err
	}
	return cred.Uid, cred.Gid, nil
}
