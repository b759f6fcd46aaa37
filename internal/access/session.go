package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// SessionCookie is the name of the cookie that has the id of a session.
const SessionCookie = "throttler_session"

const viaSession = "session"

// Bounds of sessions, beside the longest life, which is a rule.
const (
	mostSessions = 1000
	idleTime     = time.Hour // without a request of the person
	mostShown    = 4         // cookies of one request that are tried: another host of the domain may have set some
)

// A session is the login of a browser with a token. Its caller is found by the token anew at
// each request, so it ends with the token, and has the token's role.
type session struct {
	token       [sha256.Size]byte // the hash
	begun, used time.Time
}

// ends returns when the session ends if it is not used any more.
func (s *session) ends(rules *config.Access) time.Time {
	longest, idle := s.begun.Add(rules.Session), s.used.Add(idleTime)
	if idle.Before(longest) {
		return idle
	}
	return longest
}

// sessions are all that have not ended, and some that have. The zero value has none.
type sessions struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]*session // by the hash of their id: memory that leaks shows none
}

// idsOf returns the hashes of the ids that a request shows. A request that another site has caused
// shows none, though the browser should not have sent the cookie at all.
func idsOf(r *http.Request) (ids [][sha256.Size]byte) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return nil
	}
	for _, c := range r.CookiesNamed(SessionCookie) {
		if c.Value != "" && len(ids) < mostShown {
			ids = append(ids, sha256.Sum256([]byte(c.Value)))
		}
	}
	return ids
}

// shown returns the first session that a request shows and that has not ended, its caller, and when it
// ends. The mutex is held.
func (s *sessions) shown(r *http.Request, rules *config.Access, now time.Time) (found *session, c Caller, ends time.Time, ok bool) {
	if rules == nil {
		return nil, Caller{}, time.Time{}, false
	}
	for _, id := range idsOf(r) {
		if found = s.of[id]; found == nil {
			continue
		}
		ends = found.ends(rules)
		if c, ok = bySum(found.token, rules.Tokens, viaSession); !ok || !now.Before(ends) {
			continue
		}
		return found, c, ends, true
	}
	return nil, Caller{}, time.Time{}, false
}

// find returns the caller of the session that a request shows, and when the session ends.
func (s *sessions) find(r *http.Request, rules *config.Access, now time.Time) (c Caller, ends time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, c, ends, ok = s.shown(r, rules, now)
	return c, ends, ok
}

// use notes that a person has used the session that a request shows.
func (s *sessions) use(r *http.Request, rules *config.Access, now time.Time) {
	if r.Header.Get(api.Background) != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, _, _, ok := s.shown(r, rules, now); ok {
		found.used = now
	}
}

// add begins a session for the hash of a token, and returns its id.
func (s *sessions) add(token [sha256.Size]byte, rules *config.Access, now time.Time) (id string) {
	var random [32]byte
	rand.Read(random[:])
	id = base64.RawURLEncoding.EncodeToString(random[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[[sha256.Size]byte]*session)
	}
	s.shrink(rules, now)
	s.of[sha256.Sum256([]byte(id))] = &session{token: token, begun: now, used: now}
	return id
}

// shrink makes room for a session: those that have ended go, and else the one that has not been
// used for longest.
func (s *sessions) shrink(rules *config.Access, now time.Time) {
	if len(s.of) < mostSessions {
		return
	}
	var oldest [sha256.Size]byte
	for id, at := range s.of {
		if !now.Before(at.ends(rules)) {
			delete(s.of, id)
		} else if first := s.of[oldest]; first == nil || at.used.Before(first.used) {
			oldest = id
		}
	}
	if len(s.of) >= mostSessions {
		delete(s.of, oldest)
	}
}

// remove ends the sessions that a request shows.
func (s *sessions) remove(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range idsOf(r) {
		delete(s.of, id)
	}
}

// Login begins a session for the caller of a token. The cookie has a new id, which no request
// could know before; the session that the browser had until then ends. Of an address, some
// logins a minute are tried.
func (g *Guard) Login(r *http.Request, token string) (c Caller, ends time.Time, cookie *http.Cookie, err error) {
	now, rules := time.Now(), g.rules.Load()
	switch {
	case g.own != nil:
		err = &Error{Reason: Unauthenticated, Detail: "the program that serves these pages knows its callers itself; log in there"}
	case rules == nil:
		err = &Error{Reason: Unauthenticated, Detail: "the configuration in force has no access, so there are no tokens; give access with tokens, and reload"}
	case !g.logins.allow(remote(r), now):
		err = &Error{Reason: TooManyLogins, RetryAfter: wrongInterval, Detail: fmt.Sprintf("%d logins were tried from this address, and one more is tried each %v; wait", wrongBurst, wrongInterval)}
	}
	if err != nil {
		return Caller{}, ends, nil, err
	}
	sum := sha256.Sum256([]byte(token))
	c, ok := bySum(sum, rules.Tokens, viaSession)
	if !ok {
		return Caller{}, ends, nil, g.refuse(r, &Error{Reason: Unauthenticated, Wrong: true, Detail: wrongToken}, now)
	}
	g.sessions.remove(r)
	id := g.sessions.add(sum, rules, now)
	g.endSessions()
	ends = (&session{begun: now, used: now}).ends(rules)
	return c, ends, sessionCookie(r, id), nil
}

// Logout ends the session of a request. The cookie takes that of the browser away.
func (g *Guard) Logout(r *http.Request) (c Caller, cookie *http.Cookie, ok bool) {
	c, _, ok = g.sessions.find(r, g.rules.Load(), time.Now())
	g.sessions.remove(r)
	g.endSessions()
	cookie = sessionCookie(r, "")
	cookie.MaxAge = -1
	return c, cookie, ok
}

// sessionCookie returns the cookie of an id, without a path. No script reads it, and no request of another
// site has it.
func sessionCookie(r *http.Request, id string) *http.Cookie {
	return &http.Cookie{Name: SessionCookie, Value: id, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: OverTLS(r)}
}

// endSessions ends the requests of sessions that have ended.
func (g *Guard) endSessions() {
	g.mu.Lock()
	defer g.mu.Unlock()
	rules, now := g.rules.Load(), time.Now()
	for v := range g.visits {
		if v.caller.Via != viaSession {
			continue
		}
		if c, _, ok := g.sessions.find(v.r, rules, now); !ok || c != v.caller {
			v.end()
		}
	}
}
