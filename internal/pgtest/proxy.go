package pgtest

import (
	"io"
	"net"
	"sync"
	"time"
)

// A Proxy passes connections on to a server, and can cut them, refuse them, hold back their bytes, and delay these.
type Proxy struct {
	to       func() string
	listener net.Listener
	working  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	shut  bool             // new connections are refused
	left  int64            // bytes until all is cut; below 0: never
	held  [2]chan struct{} // by direction: open while its bytes are held back, else nil
	delay time.Duration

	cut chan struct{}
}

// The directions of a connection.
const (
	toServer = iota
	toClient
)

// NewProxy returns a proxy to the address that a server has at the time. Close ends it.
func NewProxy(to func() string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{to: to, listener: l, conns: make(map[net.Conn]bool), left: -1, cut: make(chan struct{}, 1)}
	p.working.Go(p.run)
	return p, nil
}

// Address is the host and port of the proxy.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

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

// Hold holds back the bytes to the server, to the client, or both, on all connections that are there or come. They
// are delivered when they are held no longer. The connections themselves stay: neither side sees a fault.
func (p *Proxy) Hold(server, client bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for way, hold := range []bool{toServer: server, toClient: client} {
		switch {
		case hold && p.held[way] == nil:
			p.held[way] = make(chan struct{})
		case !hold && p.held[way] != nil:
			close(p.held[way])
			p.held[way] = nil
		}
	}
}

// Delay delays bytes by a time, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
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
	server, err := net.DialTimeout("tcp", p.to(), 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client, server) {
		return
	}
	var both sync.WaitGroup
	for way, conns := range [][2]net.Conn{toServer: {client, server}, toClient: {server, client}} {
		both.Go(func() {
			p.copy(way, conns[1], conns[0])
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

func (p *Proxy) copy(way int, to io.Writer, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		p.wait(way)
		if n > 0 && !p.deliver(to, buffer[:n]) || err != nil {
			return
		}
	}
}

// wait waits while bytes of a direction are held back or delayed.
func (p *Proxy) wait(way int) {
	p.mu.Lock()
	held, delay := p.held[way], p.delay
	p.mu.Unlock()
	if held != nil {
		<-held
	}
	if delay > 0 {
		time.Sleep(delay)
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
	p.Hold(false, false)
	p.working.Wait()
}
