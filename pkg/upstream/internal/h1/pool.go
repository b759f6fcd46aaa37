package h1

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"
)

// A Pool keeps idle connections to one host. It is safe for concurrent use.
type Pool struct {
	MaxIdle     int           // idle connections kept
	IdleTimeout time.Duration // for so long

	mu     sync.Mutex
	idle   []*Conn // the latest is last
	sweep  *time.Timer
	closed bool // since the last request
}

// Take returns the connection that became idle last, nil if there is none that lives.
func (p *Pool) Take() *Conn {
	for {
		c := p.pop()
		if c == nil || c.check() == nil {
			return c
		}
		c.Close()
	}
}

func (p *Pool) pop() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = false
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return c
}

// Add returns a new connection of the pool. Secure returns TLS over a connection, when the
// handshake is over; nil for none.
func (p *Pool) Add(c net.Conn, secure func(net.Conn) (net.Conn, error)) (*Conn, error) {
	own := &Conn{pool: p, socket: newSocket(c)}
	own.top, own.abort = own.socket, own.socket.abort
	if secure != nil {
		top, err := secure(own.socket)
		if err != nil {
			c.Close()
			return nil, err
		}
		own.top = top
	}
	own.in = bufio.NewReaderSize(own, bufferSize)
	return own, nil
}

// NetConn returns the connection, with its TLS if it has it.
func (c *Conn) NetConn() net.Conn { return c.top }

// put keeps an idle connection.
func (p *Pool) put(c *Conn) {
	p.mu.Lock()
	keep := pollable && !p.closed && len(p.idle) < p.MaxIdle
	if keep {
		c.idle = time.Now()
		p.idle = append(p.idle, c)
		if p.sweep == nil {
			p.sweep = time.AfterFunc(p.IdleTimeout, p.expire)
		}
	}
	p.mu.Unlock()
	if !keep {
		c.Close()
	}
}

// expire closes the connections that have been idle for too long.
func (p *Pool) expire() {
	now := time.Now()
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && now.Sub(p.idle[n].idle) >= p.IdleTimeout {
		n++
	}
	old := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.sweep = nil
	if len(p.idle) > 0 && !p.closed {
		p.sweep = time.AfterFunc(p.IdleTimeout-now.Sub(p.idle[0].idle), p.expire)
	}
	p.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}

// Close closes the idle connections, and those that become idle before the next request.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	if p.sweep != nil {
		p.sweep.Stop()
		p.sweep = nil
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}
