package pgtest

import (
	"io"
	"net"
	"sync"
	"time"
)

// A Proxy passes connections on to a server, and can cut them.
type Proxy struct {
	to       string
	listener net.Listener
	working  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	shut  bool  // new connections are refused
	left  int64 // bytes until all is cut; below 0: never

	cut chan struct{}
}

// NewProxy returns a proxy to an address. Close ends it.
func NewProxy(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{to: to, listener: l, conns: make(map[net.Conn]bool), left: -1, cut: make(chan struct{}, 1)}
	p.working.Go(p.run)
	return p, nil
}

// Port is the port of the proxy on 127.0.0.1.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// CutAfter cuts all connections after so many bytes more, in either direction, and never with a number below 0.
// The last of them are delivered. A cut that has begun is over when CutAfter returns.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// Cut is sent a value when CutAfter has cut.
func (p *Proxy) Cut() <-chan struct{} { return p.cut }

// Shut cuts all connections and refuses new ones, or takes them again.
func (p *Proxy) Shut(shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	if shut {
		p.closeAll()
	}
}

func (p *Proxy) closeAll() {
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *Proxy) run() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.working.Go(func() { p.pass(client) })
	}
}

// pass passes the bytes of a connection on, both ways, until one side ends.
func (p *Proxy) pass(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.to, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client, server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			p.copy(way[1], way[0])
			client.Close()
			server.Close()
		})
	}
	both.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// keep notes a connection, unless the proxy is shut.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

func (p *Proxy) copy(to io.Writer, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.deliver(to, buffer[:n]) || err != nil {
			return
		}
	}
}

// deliver writes bytes, and cuts after the last one that may pass.
func (p *Proxy) deliver(to io.Writer, b []byte) bool {
	p.mu.Lock()
	if p.left < 0 || p.left > int64(len(b)) {
		if p.left > 0 {
			p.left -= int64(len(b))
		}
		p.mu.Unlock()
		_, err := to.Write(b)
		return err == nil
	}
	defer p.mu.Unlock()
	to.Write(b[:p.left])
	p.left = -1
	p.closeAll()
	select {
	case p.cut <- struct{}{}:
	default:
	}
	return false
}

// Close cuts all connections and ends the proxy.
func (p *Proxy) Close() {
	p.listener.Close()
	p.Shut(true)
	p.working.Wait()
}
