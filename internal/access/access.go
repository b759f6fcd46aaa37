// Package access knows the callers of the admin API, and the operations that each may do.
//
// A [Caller] is the person or the program behind a request, with its [Role]. A role has
// scopes, and each operation needs one of them:
//
//	           viewer  submitter  operator  admin
//	read         x        own        x        x
//	bodies                own       own       x
//	submit                 x         x        x
//	operate                          x        x
//	configure                                 x
//
// A [Guard] finds the caller of a request by its token, its session, its client certificate or the
// user of its socket, and refuses the request if the caller may not do the operation. The
// operation has the caller in its context:
//
//	guard := access.NewGuard(cfg.Access)
//	r, leave, err := guard.Admit(r, access.Operate)
//	…
//	caller := access.From(r.Context())
//
// A submitter sees the calls that it has submitted, and nothing else: [Caller.Sees].
//
// A person logs in with a token: [Guard.Login] begins a session, whose id the browser has in a
// cookie. Sessions are in memory, and end with the process.
//
// # Not promised
//
// A right token is taken however many wrong ones came before: a token of throttler token
// new has 256 bits, and the bound on wrong ones keeps logs short. No header is believed
// that a proxy may set, such as X-Forwarded-User.
package access

import (
	"context"
	"slices"
)

// A Scope is a kind of operation.
type Scope string

const (
	Open      Scope = "open"       // probes, for every request with or without a token
	ReadOwn   Scope = "read_own"   // calls; a submitter sees its own ones only
	Read      Scope = "read"       // everything else that can be read: limits, upstreams, events
	BodiesOwn Scope = "bodies_own" // requests and responses of the calls that the caller has submitted
	Bodies    Scope = "bodies"     // requests and responses of all calls
	Submit    Scope = "submit"     // submit calls, and cancel the caller's own ones
	Operate   Scope = "operate"    // pause, resume, cancel, edit, ask, resolve, retry
	Configure Scope = "configure"  // configuration, reload, audit
)

// Scopes are all scopes, but for Open.
var Scopes = []Scope{ReadOwn, Read, BodiesOwn, Bodies, Submit, Operate, Configure}

// A Role is a set of scopes.
type Role string

const (
	Viewer    Role = "viewer"
	Submitter Role = "submitter"
	Operator  Role = "operator"
	Admin     Role = "admin"
)

// Roles are all roles, the one that may do least first.
var Roles = []Role{Viewer, Submitter, Operator, Admin}

var scopes = map[Role][]Scope{
	Viewer:    {ReadOwn, Read},
	Submitter: {ReadOwn, BodiesOwn, Submit},
	Operator:  {ReadOwn, Read, BodiesOwn, Submit, Operate},
	Admin:     {ReadOwn, Read, BodiesOwn, Bodies, Submit, Operate, Configure},
}

// A Caller is the person or the program behind a request. The zero value may do nothing.
type Caller struct {
	Name string // of the token, the certificate or the peer; empty if it has shown nothing
	Role Role
	Via  string // token, session, certificate, socket, loopback, or the key of the role of callers that show nothing
}

// May reports whether the caller may do operations of a scope.
func (c Caller) May(s Scope) bool { return slices.Contains(scopes[c.Role], s) }

// Sees reports whether the caller may see a call, by the name of its submitter.
func (c Caller) Sees(submitter string) bool {
	return !c.Own() || c.Name != "" && c.Name == submitter
}

// Own reports whether the caller sees its own calls only: those that were submitted in its
// name, with their responses.
func (c Caller) Own() bool { return c.Role == Submitter }

type callerKey struct{}

// With returns a context with the caller of a request.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From returns the caller in a context, or the zero Caller.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
