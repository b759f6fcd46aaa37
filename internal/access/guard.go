package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// Reasons of refusals.
const (
	Misdirected     = "misdirected"     // the request names a host that is not the listener's
	Unauthenticated = "unauthenticated" // the caller shows nothing, or something that is not known
	NotPermitted    = "not_permitted"   // the caller's role lacks the scope
	TooManyWrong    = "too_many_wrong_tokens"
	TooManyLogins   = "too_many_logins"
)

// An Error is the refusal of a request.
type Error struct {
	Reason     string
	Detail     string
	RetryAfter time.Duration // 0: there is no use in waiting
	Wrong      bool          // the caller has shown something, and it is not known
}

func (e *Error) Error() string { return e.Detail }

// A Guard finds the callers of requests. Its rules may change while it is used.
type Guard struct {
	rules    atomic.Pointer[config.Access]       // nil: loopback addresses and sockets may do everything
	own      func(*http.Request) (Caller, error) // of a program that knows its callers itself; nil: they are found by the rules
	wrong    attempts
	logins   attempts
	sessions sessions

	mu     sync.Mutex
	visits map[*visit]struct{}
}

// A visit is a request that was admitted and has not ended.
type visit struct {
	r      *http.Request
	caller Caller
	end    context.CancelFunc
}

// NewGuard returns a guard with the rules of a configuration. Without any, loopback
// addresses and sockets may do everything, and other addresses nothing.
func NewGuard(rules *config.Access) *Guard {
	g := &Guard{visits: make(map[*visit]struct{})}
	g.rules.Store(rules)
	return g
}

// NewOwnGuard returns a guard of a program that knows the callers of its requests itself. The
// error of find is for a request without a caller. The names of hosts are checked by rules, if
// there are any.
func NewOwnGuard(find func(*http.Request) (Caller, error)) *Guard {
	return &Guard{visits: make(map[*visit]struct{}), own: find}
}

// Set replaces the rules. A request that is being answered, such as a stream of events,
// ends if its caller is another one by the new rules, or none.
func (g *Guard) Set(rules *config.Access) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules.Store(rules)
	for v := range g.visits {
		if caller, err := g.find(v.r, rules, time.Now()); err != nil || caller != v.caller {
			v.end()
		}
	}
}

// Admit returns a request with its caller in its context, or an [Error] if the caller may
// not do operations of the scope. The context ends when the caller loses its role, or its
// session ends. After the answer, leave must be called.
func (g *Guard) Admit(r *http.Request, s Scope) (admitted *http.Request, leave func(), err error) {
	if s == Open {
		return r, func() {}, nil
	}
	v := &visit{r: r}
	for {
		now, rules := time.Now(), g.rules.Load()
		caller, refusal := g.find(r, rules, now)
		switch {
		case refusal != nil:
			return nil, nil, g.refuse(r, refusal, now)
		case !caller.May(s):
			return nil, nil, notPermitted(caller, s)
		}
		v.caller = caller
		var ctx context.Context
		ctx, v.end = g.begin(r, caller, rules, now)
		if g.enter(v, rules) {
			return r.WithContext(ctx), func() { g.leave(v) }, nil
		}
		v.end() // the rules have changed in between, or the session has ended
	}
}

// begin returns the context of an admitted request. A session is used by it, and ends it.
func (g *Guard) begin(r *http.Request, caller Caller, rules *config.Access, now time.Time) (context.Context, context.CancelFunc) {
	ctx := With(r.Context(), caller)
	if caller.Via == viaSession {
		g.sessions.use(r, rules, now)
		if _, ends, ok := g.sessions.find(r, rules, now); ok {
			return context.WithDeadline(ctx, ends)
		}
	}
	return context.WithCancel(ctx)
}

// Known reports whether a request has a caller.
func (g *Guard) Known(r *http.Request) bool {
	_, refusal := g.find(r, g.rules.Load(), time.Now())
	return refusal == nil
}

// enter counts a request among those that are being answered; false if the rules by which
// its caller was found are no longer in force, or its session has ended.
func (g *Guard) enter(v *visit, rules *config.Access) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rules.Load() != rules {
		return false
	}
	if v.caller.Via == viaSession {
		if c, _, ok := g.sessions.find(v.r, rules, time.Now()); !ok || c != v.caller {
			return false
		}
	}
	g.visits[v] = struct{}{}
	return true
}

func (g *Guard) leave(v *visit) {
	v.end()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.visits, v)
}

// refuse bounds the refusals of wrong tokens.
func (g *Guard) refuse(r *http.Request, refusal *Error, now time.Time) error {
	if refusal.Wrong && !g.wrong.allow(remote(r), now) {
		return &Error{Reason: TooManyWrong, RetryAfter: wrongInterval, Detail: fmt.Sprintf("%d wrong tokens came from this address, and one more is looked at each %v; mend the token of the caller", wrongBurst, wrongInterval)}
	}
	return refusal
}

func notPermitted(c Caller, s Scope) *Error {
	has := "has no role"
	if c.Role != "" {
		has = fmt.Sprintf("has the role %s", c.Role)
	}
	var may []string
	for _, role := range Roles {
		if (Caller{Role: role}).May(s) {
			may = append(may, string(role))
		}
	}
	return &Error{Reason: NotPermitted, Detail: fmt.Sprintf("%s %s, and the operation needs the scope %s; roles with it: %s", cmp.Or(c.Name, "the caller"), has, s, strings.Join(may, ", "))}
}

// find returns the caller of a request by the rules. Each caller shows one thing: the
// first of a token, a session, a client certificate, and the user of its socket. A session that has
// ended counts as none.
func (g *Guard) find(r *http.Request, rules *config.Access, now time.Time) (Caller, *Error) {
	if g.own != nil {
		c, err := g.own(r)
		if err != nil {
			return Caller{}, &Error{Reason: Unauthenticated, Detail: err.Error()}
		}
		return c, nil
	}
	if rules == nil {
		return byConnection(r, rules, now)
	}
	if values := r.Header["Authorization"]; len(values) > 0 {
		return byToken(values, rules.Tokens)
	}
	if c, _, ok := g.sessions.find(r, rules, now); ok {
		return c, nil
	}
	return byConnection(r, rules, now)
}

// byConnection returns the caller that the connection of a request shows. Of one that another replica has passed on, that
// replica has told it.
func byConnection(r *http.Request, rules *config.Access, now time.Time) (Caller, *Error) {
	if caller, passed := r.Context().Value(passedKey{}).(*Caller); passed {
		if caller == nil {
			return Caller{}, &Error{Reason: Unauthenticated, Detail: noCaller}
		}
		return *caller, nil
	}
	p := peerOf(r)
	if rules == nil {
		return trusted(r, p)
	}
	if chain := p.certificates(); len(chain) > 0 {
		return byCertificate(chain, rules, now)
	}
	if p.socket != nil {
		if c, ok := bySocket(p, rules.Sockets); ok {
			return c, nil
		}
	}
	if rules.Anyone != "" {
		return Caller{Role: Role(rules.Anyone), Via: "anyone"}, nil
	}
	return Caller{}, &Error{Reason: Unauthenticated, Detail: noCaller}
}

const noCaller = "the request shows no caller; send Authorization: Bearer with a token of access.tokens, or come with a client certificate or by a socket that access names"

type passedKey struct{}

// PassedOn returns the context of a request that another replica has passed on, with the caller that its connection
// has shown there; nil if it has shown none. Tokens and sessions are in the request itself.
func PassedOn(ctx context.Context, shown *Caller) context.Context {
	return context.WithValue(ctx, passedKey{}, shown)
}

// Shown returns the caller that the connection of a request shows, without its token or session.
func (g *Guard) Shown(r *http.Request) (c Caller, ok bool) {
	c, refusal := byConnection(r, g.rules.Load(), time.Now())
	return c, refusal == nil
}

// trusted returns the caller of a configuration without access.
func trusted(r *http.Request, p peer) (Caller, *Error) {
	if p.socket != nil {
		c := Caller{Role: Admin, Via: "socket"}
		if cred, err := p.socket(); err == nil {
			c.Name = cred.name
		}
		return c, nil
	}
	if ToLoopback(r) {
		return Caller{Name: "loopback", Role: Admin, Via: "loopback"}, nil
	}
	return Caller{}, &Error{Reason: Unauthenticated, Detail: "other hosts reach this address, and the configuration in force has no access; give access with tokens, and reload"}
}

const wrongToken = "the token is none of access.tokens; it may have been revoked"

// byToken returns the caller of a token.
func byToken(values []string, tokens []config.Token) (Caller, *Error) {
	scheme, token, _ := strings.Cut(values[0], " ")
	if token = strings.TrimSpace(token); len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Caller{}, &Error{Reason: Unauthenticated, Wrong: true, Detail: "Authorization must be there once, as Bearer and a token"}
	}
	if c, ok := bySum(sha256.Sum256([]byte(token)), tokens, "token"); ok {
		return c, nil
	}
	return Caller{}, &Error{Reason: Unauthenticated, Wrong: true, Detail: wrongToken}
}

// bySum compares the hash of a token with those of all tokens in constant time.
func bySum(sum [sha256.Size]byte, tokens []config.Token, via string) (Caller, bool) {
	found := -1
	for i := range tokens {
		for j := range tokens[i].Sums {
			found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], tokens[i].Sums[j][:]), i, found)
		}
	}
	if found < 0 {
		return Caller{}, false
	}
	return Caller{tokens[found].Name, Role(tokens[found].Role), via}, true
}

// bySocket returns the caller of the first entry that fits the user of a socket.
func bySocket(p peer, sockets []config.Socket) (Caller, bool) {
	cred, err := p.socket()
	if err != nil {
		return Caller{}, false
	}
	for _, s := range sockets {
		if !s.Group && s.ID == cred.uid || s.Group && cred.in(s.ID) {
			return Caller{cred.name, Role(s.Role), "socket"}, true
		}
	}
	return Caller{}, false
}
