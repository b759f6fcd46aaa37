//go:build !unix

package http1

// left cannot tell on this system: a client's leaving is seen when it is answered.
func (c *conn) left() bool { return false }
