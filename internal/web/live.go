package web

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// Bounds of pages that are followed.
const (
	renderInterval = time.Second
	maxFollowers   = 256
	sendTimeout    = 10 * time.Second
	keepAlive      = 15 * time.Second
)

// A hub renders the pages that browsers follow.
type hub struct {
	ctx     context.Context // ends with close
	stop    context.CancelFunc
	running sync.WaitGroup // feeds

	mu    sync.Mutex
	feeds map[string]*feed // by page, language and caller
	count int              // followers of all feeds
}

func newHub() *hub {
	ctx, stop := context.WithCancel(context.Background())
	return &hub{feeds: make(map[string]*feed), ctx: ctx, stop: stop}
}

func (h *hub) close() {
	h.mu.Lock()
	h.stop()
	h.mu.Unlock()
	h.running.Wait()
}

// A feed is one page in one language for one caller. It is rendered while it has followers.
type feed struct {
	mu        sync.Mutex
	followers map[*visit]struct{}
	begun     int    // renderings
	ended     int    // the last of them that has ended
	fragment  []byte // the page, as it was rendered last
	changed   chan struct{}
	joined    bool // followers have come since a rendering has begun
	fresh     bool // they had come when the last one has begun
}

// join adds a follower to the feed of a key; render is called once a second with one of the
// feed's followers. The follower has loaded its page, so it is sent renderings after since
// only: an older one would take the page back. False: there are too many, or the process ends.
func (h *hub) join(key string, v *visit, render func(*visit) []byte) (f *feed, since int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count >= maxFollowers || h.ctx.Err() != nil {
		return nil, 0, false
	}
	h.count++
	if f = h.feeds[key]; f == nil {
		f = &feed{followers: make(map[*visit]struct{}), changed: make(chan struct{})}
		h.feeds[key] = f
		h.running.Go(func() { h.run(key, f, render) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers[v], f.joined = struct{}{}, true
	return f, f.begun, true
}

// leave removes a follower.
func (h *hub) leave(f *feed, v *visit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
	f.mu.Lock()
	delete(f.followers, v)
	f.mu.Unlock()
}

// run renders a feed until its last follower has left.
func (h *hub) run(key string, f *feed, render func(*visit) []byte) {
	tick := time.NewTicker(renderInterval)
	defer tick.Stop()
	for {
		v := h.follower(key, f)
		if v == nil {
			return
		}
		if fragment := render(v); v.Context().Err() == nil { // else it has left, and another one asks next
			f.put(fragment)
		}
		select {
		case <-tick.C:
		case <-h.ctx.Done():
			return
		}
	}
}

// follower returns a follower of a feed, for a rendering that begins. Without one, the feed ends.
func (h *hub) follower(key string, f *feed) *visit {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := range f.followers {
		f.begun++
		f.fresh, f.joined = f.joined, false
		return v
	}
	delete(h.feeds, key)
	return nil
}

// put keeps a fragment, and tells the followers if it is another one, or the first for some.
func (f *feed) put(fragment []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = f.begun
	if bytes.Equal(f.fragment, fragment) && !f.fresh {
		return
	}
	f.fragment = fragment
	close(f.changed)
	f.changed = make(chan struct{})
}

// latest returns the fragment, if its rendering has begun after since, and a channel that is
// closed when there is another one.
func (f *feed) latest(since int) ([]byte, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended <= since {
		return nil, f.changed
	}
	return f.fragment, f.changed
}

// follow streams the page at a path, each time that it has changed:
// GET /ui/live?at=/ui/calls/7.
func (p *Pages) follow(w http.ResponseWriter, r *http.Request) {
	at, err := url.Parse(ownPath(strings.TrimPrefix(r.URL.Query().Get("at"), p.prefix)))
	if err != nil || at.Path == "" || at.Path == r.URL.Path || strings.HasPrefix(at.Path, staticPath) {
		p.fail(w, p.visit(r), &problem{Status: http.StatusBadRequest, Title: "Bad request", Detail: "The parameter at must be the path of a page, such as /ui/calls."})
		return
	}
	target := r.Clone(context.WithValue(r.Context(), followed{}, true))
	target.URL, target.RequestURI = &url.URL{Path: at.Path, RawQuery: at.RawQuery}, at.RequestURI()
	p.mux.ServeHTTP(w, target)
}

// followed is the key of requests to follow a page, in their context.
type followed struct{}

// join follows a page for a browser.
func (p *Pages) join(w http.ResponseWriter, v *visit, page page) {
	var info api.Info
	if err := v.get("/v1/info", nil, &info); err != nil {
		p.fail(w, v, err)
		return
	}
	c := info.Caller
	key := strings.Join([]string{v.lang.tag, v.theme(), c.Via, c.Role, c.Name, v.RequestURI}, "\x00")
	f, since, ok := p.live.join(key, v, func(v *visit) []byte { return p.fragment(v.again(), page) })
	if !ok {
		p.fail(w, v, &problem{Status: http.StatusServiceUnavailable, Title: "Busy", Detail: "Too many pages are followed; this one stays as it was loaded."})
		return
	}
	defer p.live.leave(f, v)
	p.stream(w, v.Request, f, since)
}

// stream sends the fragments of a feed until the browser leaves, or the process ends.
func (p *Pages) stream(w http.ResponseWriter, r *http.Request, f *feed, since int) {
	session, err := sse.Upgrade(w, r)
	if err != nil {
		return
	}
	deadline, beat := http.NewResponseController(w), time.NewTicker(keepAlive)
	defer beat.Stop()
	send := func(m *sse.Message) bool {
		deadline.SetWriteDeadline(time.Now().Add(sendTimeout))
		return session.Send(m) == nil && session.Flush() == nil
	}
	hello := &sse.Message{}
	hello.AppendComment("followed")
	if !send(hello) {
		return
	}
	var sent []byte
	for {
		fragment, changed := f.latest(since)
		if !bytes.Equal(fragment, sent) {
			m := &sse.Message{Type: sse.Type("page")}
			m.AppendData(string(fragment))
			if !send(m) {
				return
			}
			sent = fragment
		}
		for waits := true; waits; {
			select {
			case <-changed:
				waits = false
			case <-beat.C:
				m := &sse.Message{}
				m.AppendComment("still here")
				if !send(m) {
					return
				}
			case <-r.Context().Done():
				return
			case <-p.live.ctx.Done():
				return
			}
		}
	}
}

// fragment renders the part of a page that changes. An error is a page too.
func (p *Pages) fragment(v *visit, page page) []byte {
	template := page.template
	view, err := page.load(v)
	if err != nil {
		e := asProblem(err)
		template, view = "problem", viewOf(e)
	}
	out, err := p.render(v, template, view, "body")
	if err != nil {
		return nil
	}
	return out.Bytes()
}
