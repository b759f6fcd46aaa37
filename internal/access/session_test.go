package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// lasting are the rules of callers with sessions of 12 h.
func lasting() *config.Access {
	rules := callers()
	rules.Session = 12 * time.Hour
	return rules
}

// login begins a session, and returns its cookie.
func login(t *testing.T, g *Guard, r *http.Request, token string) *http.Cookie {
	t.Helper()
	_, _, cookie, err := g.Login(r, token)
	if err != nil {
		t.Fatal(err)
	}
	return cookie
}

// with returns a request with a cookie, and header fields as pairs.
func with(c *http.Cookie, header ...string) *http.Request {
	r := request(far)
	r.AddCookie(c)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// as returns the caller of a request, or the reason of its refusal.
func as(g *Guard, r *http.Request) string {
	admitted, leave, err := g.Admit(r, ReadOwn)
	if err != nil {
		return reason(err)
	}
	defer leave()
	c := From(admitted.Context())
	return fmt.Sprint(c.Name, " ", c.Role, " ", c.Via)
}

func TestLogin(t *testing.T) {
	g := NewGuard(lasting())
	c, ends, cookie, err := g.Login(request(far), "operator")
	if err != nil || c != (Caller{"operator", Operator, "session"}) || time.Until(ends) > idleTime || time.Until(ends) < idleTime-time.Minute {
		t.Fatalf("%+v until %v, %v", c, ends, err)
	}
	if cookie.Name != SessionCookie || len(cookie.Value) != 43 || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Secure || cookie.MaxAge != 0 {
		t.Errorf("the cookie is %v", cookie)
	}
	if got := as(g, with(cookie)); got != "operator operator session" {
		t.Errorf("the caller is %s", got)
	}
	for id := range g.sessions.of {
		if id != sha256.Sum256([]byte(cookie.Value)) {
			t.Errorf("the table has %x", id)
		}
	}

	// A token comes before a session, also a wrong one.
	if got := as(g, with(cookie, "Authorization", "Bearer viewer")); got != "viewer viewer token" {
		t.Errorf("with a token: %s", got)
	}
	if got := as(g, with(cookie, "Authorization", "Bearer x")); got != Unauthenticated {
		t.Errorf("with a wrong token: %s", got)
	}

	// A second login has another id, and ends the first one.
	second := login(t, g, with(cookie), "viewer")
	if second.Value == cookie.Value || as(g, with(cookie)) != Unauthenticated || as(g, with(second)) != "viewer viewer session" || len(g.sessions.of) != 1 {
		t.Errorf("the second id is %s; %d sessions", second.Value, len(g.sessions.of))
	}
	r := request(far)
	r.TLS = new(tls.ConnectionState)
	if c := login(t, g, r, "viewer"); !c.Secure {
		t.Error("the cookie of TLS goes without TLS too")
	}

	// Nothing else is an id.
	for _, value := range []string{"", "x", "viewer", fmt.Sprintf("%x", sha256.Sum256([]byte(second.Value)))} {
		if got := as(g, with(&http.Cookie{Name: SessionCookie, Value: value})); got != Unauthenticated {
			t.Errorf("id %q: %s", value, got)
		}
	}
	open := lasting()
	open.Anyone = "viewer"
	g.Set(open)
	if got := as(g, with(cookie)); got != " viewer anyone" {
		t.Errorf("a session that has ended, where callers may show nothing: %s", got)
	}
}

// TestSessionsEnd by time, by the token, by the configuration and by logout.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(lasting())
		at := login(t, g, request(far), "viewer")
		time.Sleep(idleTime - time.Second)
		for range 3 { // a page that follows itself does not count as use
			if got := as(g, with(at, api.Background, "1")); got != "viewer viewer session" {
				t.Fatalf("before an hour: %s", got)
			}
		}
		time.Sleep(time.Second)
		if got := as(g, with(at)); got != Unauthenticated {
			t.Errorf("after an hour without use: %s", got)
		}

		at = login(t, g, request(far), "viewer")
		for range 23 {
			time.Sleep(30 * time.Minute)
			if got := as(g, with(at)); got != "viewer viewer session" {
				t.Fatalf("in use: %s", got)
			}
		}
		time.Sleep(30 * time.Minute)
		if got := as(g, with(at)); got != Unauthenticated {
			t.Errorf("after 12 hours: %s", got)
		}

		at = login(t, g, request(far), "viewer")
		time.Sleep(10 * time.Minute)
		short := lasting()
		short.Session = 5 * time.Minute
		g.Set(short)
		if got := as(g, with(at)); got != Unauthenticated {
			t.Errorf("a shorter life by a reload: %s", got)
		}
		g.Set(lasting())

		other := lasting()
		other.Tokens = []config.Token{tokenOf("viewer", Admin)}
		g.Set(other)
		if got := as(g, with(at)); got != "viewer admin session" {
			t.Errorf("another role: %s", got)
		}
		g.Set(&config.Access{Session: time.Hour})
		if got := as(g, with(at)); got != Unauthenticated {
			t.Errorf("a revoked token: %s", got)
		}
		g.Set(nil)
		if got := as(g, with(at)); got != Unauthenticated {
			t.Errorf("no access: %s", got)
		}

		g.Set(lasting())
		c, gone, ok := g.Logout(with(at))
		if !ok || c.Name != "viewer" || gone.MaxAge >= 0 || as(g, with(at)) != Unauthenticated {
			t.Errorf("logout: %+v, %v, %v, then %s", c, gone, ok, as(g, with(at)))
		}
		if _, _, ok := g.Logout(with(at)); ok {
			t.Error("a second logout ends a session too")
		}
	})
}

// TestSessionsEndRequests: a stream of a session ends with it, and others go on.
func TestSessionsEndRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(lasting())
		stream := func(c *http.Cookie) context.Context {
			t.Helper()
			r, leave, err := g.Admit(with(c), ReadOwn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(leave)
			return r.Context()
		}
		one, two := login(t, g, request(far), "viewer"), login(t, g, request(far), "viewer")
		first, second := stream(one), stream(two)
		g.Logout(with(one))
		if first.Err() == nil || second.Err() != nil {
			t.Errorf("after the logout of one: ended %v and %v", first.Err() != nil, second.Err() != nil)
		}
		login(t, g, with(two), "viewer")
		if second.Err() == nil {
			t.Error("the stream of the session before a login goes on")
		}
		three := login(t, g, request(far), "operator")
		third := stream(three)
		time.Sleep(idleTime)
		synctest.Wait()
		if third.Err() == nil {
			t.Error("a stream goes on after an hour without use")
		}
		third = stream(login(t, g, request(far), "operator"))
		next := lasting()
		next.Tokens = slices.DeleteFunc(next.Tokens, func(t config.Token) bool { return t.Name == "operator" })
		if g.Set(next); third.Err() == nil {
			t.Error("a stream of a revoked token goes on")
		}
		if g.enter(&visit{r: with(one), caller: Caller{Via: viaSession}}, next) {
			t.Error("a request enters though its session has ended since")
		}
	})
}

// TestSessionsOfOtherSites: a request that another site has caused has no session.
func TestSessionsOfOtherSites(t *testing.T) {
	g := NewGuard(lasting())
	at := login(t, g, request(far), "admin")
	for site, want := range map[string]string{
		"same-origin": "admin admin session", "none": "admin admin session",
		"same-site": Unauthenticated, "cross-site": Unauthenticated, "x": Unauthenticated,
	} {
		if got := as(g, with(at, "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Sec-Fetch-User", "?1")); got != want {
			t.Errorf("%s: %s, want %s", site, got, want)
		}
	}
	if g.Logout(with(at, "Sec-Fetch-Site", "cross-site")); as(g, with(at)) != "admin admin session" {
		t.Error("another site has ended the session")
	}
}

// TestLoginsAreBounded: 5 tries at once and one more each 12 s, right or wrong, of each address;
// wrong ones count as wrong tokens too.
func TestLoginsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(lasting())
		try := func(addr, token string) string {
			r := request(far)
			r.RemoteAddr = addr
			_, _, _, err := g.Login(r, token)
			return reason(err)
		}
		for n := range 7 {
			want := "ok"
			if n >= 5 {
				want = TooManyLogins
			}
			if got := try("192.0.2.9:1", "viewer"); got != want {
				t.Errorf("login %d: %s", n, got)
			}
		}
		if got := try("192.0.2.8:1", "viewer"); got != "ok" {
			t.Errorf("another address: %s", got)
		}
		time.Sleep(wrongInterval)
		if got := try("192.0.2.9:1", "viewer"); got != "ok" {
			t.Errorf("%v later: %s", wrongInterval, got)
		}
		for n := range 5 {
			if got := try("192.0.2.7:1", "wrong"); got != Unauthenticated {
				t.Errorf("wrong login %d: %s", n, got)
			}
		}
		r := request(far, "Bearer wrong")
		r.RemoteAddr = "192.0.2.7:2"
		if _, _, err := g.Admit(r, Read); reason(err) != TooManyWrong {
			t.Errorf("a wrong token after wrong logins: %s", reason(err))
		}
	})
	g := NewGuard(nil)
	if _, _, _, err := g.Login(request(near), "viewer"); reason(err) != Unauthenticated {
		t.Errorf("without access: %v", err)
	}
}

// TestSessionsAreBounded: those that have ended go first, then the one that was not used for
// longest.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		rules := lasting()
		sum := sha256.Sum256([]byte("viewer"))
		show := func(id string) *http.Request { return with(&http.Cookie{Name: SessionCookie, Value: id}) }
		first := s.add(sum, rules, time.Now())
		time.Sleep(time.Second)
		second := s.add(sum, rules, time.Now())
		time.Sleep(time.Second)
		for range mostSessions - 2 {
			s.add(sum, rules, time.Now())
		}
		time.Sleep(time.Second)
		s.use(show(first), rules, time.Now())
		s.add(sum, rules, time.Now())
		_, _, one := s.find(show(first), rules, time.Now())
		_, _, two := s.find(show(second), rules, time.Now())
		if len(s.of) != mostSessions || !one || two {
			t.Errorf("%d sessions; the first is there: %v, the second: %v", len(s.of), one, two)
		}
		time.Sleep(idleTime)
		if s.add(sum, rules, time.Now()); len(s.of) != 1 {
			t.Errorf("%d sessions after an hour", len(s.of))
		}
	})
}

// TestOwnGuard finds the callers of a program that knows them itself.
func TestOwnGuard(t *testing.T) {
	g := NewOwnGuard(func(r *http.Request) (Caller, error) {
		if name := r.Header.Get("User"); name != "" {
			return Caller{Name: name, Role: Viewer, Via: "program"}, nil
		}
		return Caller{}, errors.New("log in first")
	})
	r := request(far, "Basic of-the-program")
	if got := as(g, r); got != Unauthenticated || g.Known(r) {
		t.Errorf("without a user: %s", got)
	}
	r.Header.Set("User", "ada")
	if got := as(g, r); got != "ada viewer program" || !g.Known(r) {
		t.Errorf("with a user: %s", got)
	}
	if _, _, _, err := g.Login(r, "viewer"); reason(err) != Unauthenticated {
		t.Errorf("a login: %v", err)
	}
	r.Host = "ops.example"
	if err := g.Addressed(r); err != nil {
		t.Error(err)
	}
	g.Set(&config.Access{Hosts: []string{"ops.example"}})
	if err := g.Addressed(r); err != nil {
		t.Error(err)
	}
	if r.Host = "evil.example"; g.Addressed(r) == nil {
		t.Error("a rebound name is taken")
	}
}

// TestBogusCookies: another host of the domain may set cookies of the same name, and the browser sends
// them first. Some are tried, and none takes the session of the person away or lengthens its life.
func TestBogusCookies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(lasting())
		old := login(t, g, request(far), "admin")
		time.Sleep(idleTime)
		cookie := login(t, g, request(far), "viewer")
		with := func(before int, first *http.Cookie) *http.Request {
			r := request(far)
			for range before {
				r.AddCookie(first)
			}
			r.AddCookie(cookie)
			return r
		}
		bogus := &http.Cookie{Name: SessionCookie, Value: "x"}
		for before, want := range map[int]string{0: "viewer viewer session", mostShown - 1: "viewer viewer session", mostShown: Unauthenticated} {
			if got := as(g, with(before, bogus)); got != want {
				t.Errorf("%d bogus cookies first: %s, want %s", before, got, want)
			}
		}
		for range 3 {
			time.Sleep(idleTime / 2)
			if got := as(g, with(1, old)); got != "viewer viewer session" {
				t.Errorf("beside a session that has ended: %s", got)
			}
		}
		if got := as(g, with(1, old)); got != "viewer viewer session" {
			t.Errorf("used beside a session that has ended: %s", got)
		}
		if _, _, ok := g.Logout(with(1, bogus)); !ok {
			t.Error("no logout beside a bogus cookie")
		}
		if got := as(g, with(1, bogus)); got != Unauthenticated {
			t.Errorf("after the logout: %s", got)
		}
	})
}
