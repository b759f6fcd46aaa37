// Package access says who may do which operations of the admin API.
//
// A [Caller] is the person or the program behind a request, with its [Role]. A role has
// scopes, and each operation needs one of them:
//
//	           viewer  submitter  operator  admin
//	read         x        own        x        x
//	bodies                own                 x
//	submit                 x         x        x
//	operate                          x        x
//	configure                                 x
//
// The server finds the caller of a request and puts it into the request's context; an
// operation asks it there:
//
//	caller := access.From(ctx)
//	if !caller.May(access.Operate) { … }
//
// A submitter sees the calls that it has submitted, and nothing else: [Caller.Own].
package access

import (
	"context"
	"slices"
)

// A Scope is a kind of operation.
type Scope string

const (
	Read      Scope = "read"      // lists, limits, events
	Bodies    Scope = "bodies"    // requests and responses of calls
	Submit    Scope = "submit"    // submit calls, and cancel the caller's own ones
	Operate   Scope = "operate"   // pause, resume, cancel, ask, resolve, retry
	Configure Scope = "configure" // configuration, reload, audit
)

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
	Viewer:    {Read},
	Submitter: {Submit},
	Operator:  {Read, Submit, Operate},
	Admin:     {Read, Bodies, Submit, Operate, Configure},
}

// A Caller is the person or the program behind a request. The zero value may do nothing.
type Caller struct {
	Name string // of the token, the certificate or the peer; empty if it has shown nothing
	Role Role
	Via  string // token, certificate, socket or loopback
}

// May reports whether the caller may do operations of a scope.
func (c Caller) May(s Scope) bool { return slices.Contains(scopes[c.Role], s) }

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
