package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Business numbers and identities: an identity is an idempotency key that the configuration
// computes, for all calls of an upstream, in place of the caller.

// maxNumbers bounds the numbers of an upstream; each is kept with every call.
const maxNumbers = 8

// A number is a compiled element of Upstream.Numbers.
type number struct {
	name string
	*upstream.Expr
}

// identities are the identity of a call, and those of the calls that it concerns.
type identities struct {
	own  string // with its upstream's name; empty for none
	ends string // of the calls that it ends; empty for none
	asks string // of the call that it, a query, asks about; empty for none

	revoked atomic.Bool // another call has ended it: no further byte of it is sent
}

// identity returns the identity of the call, empty for none.
func (i *identities) identity() string {
	if i == nil {
		return ""
	}
	return i.own
}

// toEnd returns the identity of the calls that the call ends, empty for none.
func (i *identities) toEnd() string {
	if i == nil {
		return ""
	}
	return i.ends
}

// askedAbout returns the identity of the call that a query asks about, empty for none.
func (i *identities) askedAbout() string {
	if i == nil {
		return ""
	}
	return i.asks
}

// compileIdentities compiles the expressions of numbers, identity, ends and asks.
func compileIdentities(sv *service, fault func(string, error)) {
	if n := len(sv.Numbers); n > maxNumbers {
		fault("numbers", fmt.Errorf("has %d names, at most %d are taken", n, maxNumbers))
	}
	for _, name := range slices.Sorted(maps.Keys(sv.Numbers)) {
		field := "numbers." + name
		n := number{name: name}
		if !nameRule.MatchString(name) {
			fault(field, fmt.Errorf("name %q must be lower-case letters, digits, - and _, at most 63", name))
		}
		if sv.Numbers[name] == "" {
			fault(field, errors.New("is empty; give an expression such as 'json(\"out_trade_no\")', or leave the name out"))
		}
		compileExpr(sv.Numbers[name], upstream.Key, &n.Expr, field, fault)
		sv.numbers = append(sv.numbers, n)
	}
	compileExpr(sv.Identity, upstream.Key, &sv.identity, "identity", fault)
	compileExpr(sv.Ends, upstream.Key, &sv.ends, "ends", fault)
	compileExpr(sv.Asks, upstream.Key, &sv.asks, "asks", fault)
	if sv.Ends != "" && sv.Identity == "" {
		fault("ends", errors.New("needs identity, which names the calls that are ended"))
	}
	if sv.Asks != "" && sv.Identity == "" {
		fault("asks", errors.New("needs identity, which names the calls that are asked about"))
	}
}

// identify gives a new call its numbers and identities. It refuses the call if its identity cannot
// be computed: the call may be a repeat.
func identify(sv *service, c *call, in *upstream.Input) (refused *Error) {
	for _, n := range sv.numbers {
		if v, err := n.OptionalKey(in); err == nil && v != "" {
			if c.Numbers == nil {
				c.Numbers = make(map[string]string, len(sv.numbers))
			}
			c.Numbers[n.name] = v
		}
	}
	c.identities, refused = identitiesOf(sv, in)
	return refused
}

// identitiesOf returns the identities of a request, nil for none.
func identitiesOf(sv *service, in *upstream.Input) (*identities, *Error) {
	own, refused := identityBy(sv, "identity", sv.identity, in)
	if refused != nil {
		return nil, refused
	}
	ends, refused := identityBy(sv, "ends", sv.ends, in)
	if refused != nil {
		return nil, refused
	}
	asks, unclear := identityBy(sv, "asks", sv.asks, in)
	if unclear != nil { // a query does no harm: it goes, and settles nothing
		asks = ""
	}
	if own == "" && ends == "" && asks == "" {
		return nil, nil
	}
	return &identities{own: own, ends: ends, asks: asks}, nil
}

// identityBy returns the identity that an expression gives a request, empty for none.
func identityBy(sv *service, field string, e *upstream.Expr, in *upstream.Input) (string, *Error) {
	if e == nil {
		return "", nil
	}
	v, err := e.OptionalKey(in)
	switch {
	case err != nil:
		return "", &Error{Reason: BadKey, Upstream: sv.Name, Detail: fmt.Sprintf("%s: %v", field, err)}
	case v == "":
		return "", nil
	}
	return sv.Name + "\x00" + v, nil // an idempotency key follows a space
}

// An endedError refuses a call whose identity another call has ended.
type endedError struct{ by string }

func (e *endedError) Error() string { return "never sent: call " + e.by + " has ended it" }

// ended returns the endedError in the chain of an error, nil if there is none.
func ended(err error) *endedError {
	if err == nil {
		return nil
	}
	var e *endedError
	errors.As(err, &e)
	return e
}

// identityLocks are locks of identities. Each is held while its identity is looked up and
// stored, since durable and other calls have two stores. A call of another identity does not
// wait, so an identity costs a call no place in the order of its upstream.
type identityLocks struct {
	mu         sync.Mutex
	byIdentity map[string]*identityLock // those that are held or awaited
}

// An identityLock is the lock of one identity.
type identityLock struct {
	held  chan struct{} // full while it is held
	users int           // holder and waiters; under identityLocks.mu
}

func newIdentityLocks() *identityLocks {
	return &identityLocks{byIdentity: make(map[string]*identityLock)}
}

// lock waits for the lock of an identity, empty for none. The error is that of ctx.
func (l *identityLocks) lock(ctx context.Context, identity string) (unlock func(), err error) {
	if identity == "" {
		return func() {}, nil
	}
	one := l.join(identity)
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; l.leave(identity, one) }, nil
	case <-ctx.Done():
		l.leave(identity, one)
		return nil, ctx.Err()
	}
}

func (l *identityLocks) join(identity string) *identityLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.byIdentity[identity]
	if one == nil {
		one = &identityLock{held: make(chan struct{}, 1)}
		l.byIdentity[identity] = one
	}
	one.users++
	return one
}

// leave removes the lock of an identity with its last user.
func (l *identityLocks) leave(identity string, one *identityLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.byIdentity, identity)
	}
}

// known returns the call that was accepted with the key or the identity of an entry, nil if
// there is none. The error is an endedError if a call has ended the identity. It is asked before
// any reason to refuse the entry: an accepted call stays accepted.
func (j *journal) known(ctx context.Context, e *Entry) (*Call, error) {
	if e.Key == "" && e.Identity == "" {
		return nil, nil
	}
	if err := j.reading(func() error { return j.checkUnended(ctx, e.Identity) }); err != nil {
		return nil, err
	}
	return j.find(ctx, e)
}

// find returns the call that was accepted with the key or the identity of an entry, nil if
// there is none. A key is looked up in the store of the call, an identity in both stores: the
// first call may have been submitted, and the caller of the second may wait. A failed call of the
// key gives way to a later call of its identity.
func (j *journal) find(ctx context.Context, e *Entry) (known *Call, err error) {
	err = j.reading(func() (err error) {
		own, other := j.storeOf(e.Call), j.memory
		if own == other {
			other = j.durable
		}
		if known, err = own.Find(ctx, e); e.Identity == "" || err != nil || known != nil && known.State != Failed {
			return err
		}
		named := &Entry{Identity: e.Identity, Fingerprint: e.Fingerprint}
		var later *Call
		if known != nil {
			later, err = own.Find(ctx, named)
		}
		if later == nil && err == nil && other != nil {
			later, err = other.Find(ctx, named)
		}
		if later != nil || err != nil {
			known = later
		}
		return err
	})
	return known, err
}

// end stores that a call ends the calls of an identity. Meanwhile no call and no intent of that
// identity is stored.
func (j *journal) end(identity, by string) error {
	unlock, _ := j.locks.lock(context.Background(), identity)
	defer unlock()
	if j.hasFailed() {
		return ErrBroken
	}
	err := j.endedStore().End(context.Background(), identity, by)
	j.check(err)
	return err
}

// unended keeps an identity from being ended until unlock. The error is an endedError if it is
// ended already.
func (j *journal) unended(identity string) (unlock func(), err error) {
	unlock, _ = j.locks.lock(context.Background(), identity)
	if err = j.checkUnended(context.Background(), identity); err != nil {
		unlock()
	}
	return unlock, err
}

func (j *journal) checkUnended(ctx context.Context, identity string) error {
	if identity == "" {
		return nil
	}
	by, err := j.endedStore().EndedBy(ctx, identity)
	j.check(err)
	if err == nil && by != "" {
		err = &endedError{by}
	}
	return err
}

// endedStore returns the store of ended identities.
func (j *journal) endedStore() Store {
	if j.durable != nil {
		return j.durable
	}
	return j.memory
}
