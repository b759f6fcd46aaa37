package server

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Sessions of browsers.

// logIn begins a session. A wrong token is recorded, without its text.
func logIn(a *Admin, r request[api.Login]) (*api.Session, error) {
	in, f := r.body()
	token := strings.TrimSpace(in.Token)
	if token == "" {
		f.add("/token", "token is missing; send one of access.tokens")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	caller, ends, cookie, err := a.Guard.Login(r.Request, token)
	if err != nil {
		if refusal := challenge(r.responseHeader, err); refusal != nil && refusal.Wrong {
			noted(a, r.Request, access.Caller{Name: "unknown", Via: "login"}, "login_failed")
		}
		return nil, err
	}
	noted(a, r.Request, caller, "login")
	setCookie(a, r.responseHeader, cookie)
	return &api.Session{Caller: callerInfo(caller), EndsAt: api.At(ends)}, nil
}

// logOut ends the session of the request.
func logOut(a *Admin, r request[none]) (*api.Session, error) {
	caller, cookie, ok := a.Guard.Logout(r.Request)
	setCookie(a, r.responseHeader, cookie)
	if !ok {
		return nil, &scheduler.Error{Reason: scheduler.NotFound, Detail: "the request has no session, or it has ended"}
	}
	noted(a, r.Request, caller, "logout")
	return &api.Session{Caller: callerInfo(caller), EndsAt: api.At(time.Now())}, nil
}

// noted records a login or a logout. It is made also if no record can be kept: on a full disk, a
// person must be able to look at the calls.
func noted(a *Admin, r *http.Request, caller access.Caller, action string) {
	r = r.WithContext(access.With(r.Context(), caller))
	audited(a, r, scheduler.AuditRecord{Action: action}, func() error { return nil })
}

// setCookie sets a cookie for the whole API, and for the pages beside it.
func setCookie(a *Admin, h http.Header, c *http.Cookie) {
	c.Path = a.Prefix + "/"
	h.Add("Set-Cookie", c.String())
}

// challenge tells a client how to show itself (RFC 6750, section 3), if err is the refusal of a
// caller that is not known. It returns the refusal, or nil.
func challenge(h http.Header, err error) *access.Error {
	var refusal *access.Error
	if !errors.As(err, &refusal) || refusal.Reason != access.Unauthenticated {
		return nil
	}
	text := "Bearer"
	if refusal.Wrong {
		text += ` error="invalid_token"`
	}
	h.Set("WWW-Authenticate", text)
	return refusal
}

func callerInfo(c access.Caller) api.CallerInfo {
	info := api.CallerInfo{Name: c.Name, Role: string(c.Role), Via: c.Via, Scopes: []string{}}
	for _, s := range access.Scopes {
		if c.May(s) {
			info.Scopes = append(info.Scopes, string(s))
		}
	}
	return info
}

// exampleSession is one of the documentation.
var exampleSession = api.Session{Caller: exampleInfo.Caller, EndsAt: exampleAt(59)}

var sessionOperations = []Operation{
	handles(Operation{
		Method: "POST", Path: "/v1/session", ID: "logIn", Scope: access.Open, Status: http.StatusCreated,
		Summary: "Begin a session of a browser, with a token",
		Doc:     "The answer sets the cookie throttler_session, which is for a browser only: programs send Authorization. The session ends after access.session, an hour without use, or with its token. Of an address, 5 logins at once and one more each 12 s are tried.",
	}, api.Login{Token: "thr_…"}, &exampleSession, logIn),
	handles(Operation{
		Method: "DELETE", Path: "/v1/session", ID: "logOut", Scope: access.Open, Status: http.StatusOK,
		Summary: "End the session of the browser",
		Doc:     "The answer is the session that has ended.",
	}, none{}, &exampleSession, logOut),
}
