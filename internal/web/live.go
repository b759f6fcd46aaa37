package web

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tmaxmax/go-sse"
)

// Bounds of pages that are followed.
const (
	renderInterval = time.Second
	maxFollowers   = 256
	maxOfCaller    = maxFollowers / 4 // so that one leaves room for others
	keepAlive      = 15 * time.Second
)

// sendTimeout is the time in which a browser must take a page.
var sendTimeout = 10 * time.Second

// A hub renders the pages that browsers follow, one after the other. It rests after each round
// for at least as long as the round took: pages never take more than half of one processor from
// the calls.
type hub struct {
	ctx     context.Context // ends with close
	stop    context.CancelFunc
	running sync.WaitGroup // the goroutine that renders, while there are feeds

	mu        sync.Mutex
	feeds     map[string]*feed // by page, language and caller
	count     int              // followers of all feeds
	of        map[string]int   // those of each caller
	round     int              // the latest that has begun
	rendering bool             // run has not ended
}

func newHub() *hub {
	ctx, stop := context.WithCancel(context.Background())
	return &hub{feeds: make(map[string]*feed), of: make(map[string]int), ctx: ctx, stop: stop}
}

func (h *hub) close() {
	h.mu.Lock()
	h.stop()
	h.mu.Unlock()
	h.running.Wait()
}

// A feed is one page in one language for one caller. It is rendered while it has followers.
type feed struct {
	key       string
	caller    string
	render    func(*visit) (fragment []byte, last bool)
	followers map[*visit]struct{} // guarded by the hub

	mu       sync.Mutex
	fragment []byte        // the page, as it was rendered last
	last     bool          // the session has ended: none will follow
	round    int           // in which it was
	rendered chan struct{} // closed when it is rendered again
}

// join adds a follower to the feed of a key; render is called once a second with one of the
// feed's followers. The follower has a page of its own already, so it takes those of rounds after
// since only. False: there are too many, of all callers or of this one, or the process ends.
func (h *hub) join(caller, key string, v *visit, render func(*visit) (fragment []byte, last bool)) (f *feed, since int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count >= maxFollowers || h.of[caller] >= maxOfCaller || h.ctx.Err() != nil {
		return nil, 0, false
	}
	if f = h.feeds[key]; f == nil {
		f = &feed{key: key, caller: caller, render: render, followers: make(map[*visit]struct{}), rendered: make(chan struct{})}
		h.feeds[key] = f
	}
	f.followers[v] = struct{}{}
	h.count++
	h.of[caller]++
	if !h.rendering {
		h.rendering = true
		h.running.Go(h.run)
	}
	return f, h.round, true
}

// leave removes a follower, and the feed with the last one.
func (h *hub) leave(f *feed, v *visit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
	if h.of[f.caller]--; h.of[f.caller] == 0 {
		delete(h.of, f.caller)
	}
	if delete(f.followers, v); len(f.followers) == 0 {
		delete(h.feeds, f.key)
	}
}

// run renders the feeds, a round each second, until there is none.
func (h *hub) run() {
	for {
		began := time.Now()
		feeds, round := h.begin()
		if feeds == nil {
			return
		}
		for _, f := range feeds {
			if v := h.follower(f); v != nil && h.ctx.Err() == nil {
				if fragment, last := f.render(v); v.Context().Err() == nil { // else it has left meanwhile
					f.put(fragment, last, round)
				}
			}
		}
		took := time.Since(began)
		select {
		case <-time.After(max(renderInterval-took, took)):
		case <-h.ctx.Done():
			return
		}
	}
}

// begin returns the feeds of a new round. With none, run ends, and the next one to join begins it
// anew.
func (h *hub) begin() (feeds []*feed, round int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rendering = len(h.feeds) > 0
	h.round++
	return slices.Collect(maps.Values(h.feeds)), h.round
}

// follower returns a follower of a feed, nil if all have left.
func (h *hub) follower(f *feed) *visit {
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range f.followers {
		return v
	}
	return nil
}

// put keeps a fragment, and wakes the followers.
func (f *feed) put(fragment []byte, last bool, round int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fragment, f.last, f.round = fragment, last, round
	close(f.rendered)
	f.rendered = make(chan struct{})
}

// latest returns the fragment, if it is of a round after since, and a channel that is closed when
// it is rendered again; last if it will not be.
func (f *feed) latest(since int) (fragment []byte, last bool, again <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.round <= since {
		return nil, false, f.rendered
	}
	return f.fragment, f.last, f.rendered
}

// follow streams the page at a path, each time that it has changed:
// GET /ui/live?at=/ui/calls/7.
func (p *Pages) follow(w http.ResponseWriter, r *http.Request) {
	at, err := url.Parse(ownPath(strings.TrimPrefix(r.URL.Query().Get("at"), p.prefix)))
	if err != nil || at.Path == "" || at.Path == r.URL.Path || slices.Contains(still, at.Path) || strings.HasPrefix(at.Path, staticPath) {
		v := p.visit(r)
		p.fail(w, v, v.malformed("The parameter at must be the path of a page, such as /ui/calls."))
		return
	}
	target := r.Clone(context.WithValue(r.Context(), followed{}, true))
	target.URL, target.RequestURI = &url.URL{Path: at.Path, RawQuery: at.RawQuery}, at.RequestURI()
	p.mux.ServeHTTP(w, target)
}

// still are paths without followers: a file, and a form that asks the API for more than a page does.
var still = []string{"/ui/calls.csv", "/ui/bulk"}

// followed is the key of requests to follow a page, in their context.
type followed struct{}

// join follows a page for a browser.
func (p *Pages) join(w http.ResponseWriter, v *visit, page page) {
	info, err := v.info()
	if err != nil && asProblem(err).Status == http.StatusUnauthorized {
		p.dismiss(w, v, page)
		return
	}
	if err != nil {
		p.fail(w, v, err)
		return
	}
	caller := strings.Join([]string{info.Caller.Via, info.Caller.Role, info.Caller.Name}, "\x00")
	key := strings.Join([]string{v.lang.tag, v.theme(), caller, credentials(v.Request), v.RequestURI}, "\x00")
	told := false
	f, since, ok := p.live.join(caller, key, v, func(v *visit) ([]byte, bool) { return p.guarded(v.again(), page, &told) })
	if !ok {
		p.fail(w, v, &problem{Status: http.StatusServiceUnavailable, RetryAfter: int(keepAlive / time.Second), Title: "Busy", Detail: "Too many pages are followed; this one stays as it was loaded."})
		return
	}
	defer p.live.leave(f, v)
	p.stream(w, v.Request, f, since)
}

// credentials returns all by which a request may show its caller, but for its connection. Browsers that
// show other ones follow other feeds, so that each feed ends with its own.
func credentials(r *http.Request) string {
	return strings.Join(slices.Concat(r.Header["Authorization"], r.Header["Cookie"]), "\x00")
}

// dismiss shows a browser that its session has ended, in the place of the page that it follows.
func (p *Pages) dismiss(w http.ResponseWriter, v *visit, page page) {
	session, err := sse.Upgrade(w, v.Request)
	if err != nil {
		return
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout))
	m := &sse.Message{Type: sse.Type("page")}
	fragment, _ := p.fragment(v, page)
	m.AppendData(string(fragment))
	if session.Send(m) == nil && session.Send(ended()) == nil {
		session.Flush()
	}
}

// ended tells a browser that no page will follow: it must not connect again.
func ended() *sse.Message {
	m := &sse.Message{Type: sse.Type("end")}
	m.AppendData("session")
	return m
}

// stream sends the fragments of a feed until the browser leaves, or its session or the process ends.
func (p *Pages) stream(w http.ResponseWriter, r *http.Request, f *feed, since int) {
	session, err := sse.Upgrade(w, r)
	if err != nil {
		return
	}
	deadline, timeout, beat := http.NewResponseController(w), sendTimeout, time.NewTicker(keepAlive)
	defer beat.Stop()
	send := func(m *sse.Message) bool {
		deadline.SetWriteDeadline(time.Now().Add(timeout))
		defer deadline.SetWriteDeadline(time.Time{}) // else net/http ends an HTTP/2 stream on which nothing is written
		return session.Send(m) == nil && session.Flush() == nil
	}
	hello := &sse.Message{}
	hello.AppendComment("followed")
	if !send(hello) {
		return
	}
	var sent []byte
	for {
		fragment, last, again := f.latest(since)
		if !bytes.Equal(fragment, sent) {
			m := &sse.Message{Type: sse.Type("page")}
			m.AppendData(string(fragment))
			if !send(m) {
				return
			}
			sent = fragment
		}
		if last {
			send(ended())
			return
		}
		for waits := true; waits; {
			select {
			case <-again:
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

// guarded is fragment in the goroutine of the hub, where a panic would end the process and its calls. It
// is a page about an error, and in the log once for each feed.
func (p *Pages) guarded(v *visit, page page, told *bool) (fragment []byte, last bool) {
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		if !*told {
			*told = true
			p.log.Error("web: a page that is followed has panicked", "page", page.path, "panic", fault, "stack", string(debug.Stack()))
		}
		view := viewOf(&problem{Status: http.StatusInternalServerError, Title: v.lang.mustText("page.fault"), Detail: v.lang.mustText("page.fault_says")})
		view.alone = true
		if out, err := p.render(v, "problem", view, "body"); err == nil {
			fragment = out.Bytes()
		}
	}()
	return p.fragment(v, page)
}

// fragment renders the part of a page that changes. An error is a page too; it is the last one if the
// API does not know the person any more.
func (p *Pages) fragment(v *visit, page page) (fragment []byte, last bool) {
	template := page.template
	view, err := page.load(v)
	if err != nil {
		e := asProblem(err)
		template, view, last = "problem", viewOf(e), e.Status == http.StatusUnauthorized
	}
	out, err := p.render(v, template, view, "body")
	if err != nil {
		return nil, last
	}
	return out.Bytes(), last
}
