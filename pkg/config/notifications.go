package config

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/notify"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds and defaults of notifications.
const (
	notificationTimeout = 10 * time.Second
	merchantIdle        = 4 * time.Second // of connections: many servers close them after 5 s
	notificationsAtOnce = 64
	mostNotifications   = 10000
)

// Notifications is the listener for the notifications of an upstream's platform.
type Notifications struct {
	Listen   string // host:port
	Path     string // the only path that is taken; empty: any
	Verifier notify.Verifier
	// Forward sends verified notifications to the merchant.
	Forward *upstream.Upstream
	// Numbers are request expressions over a [notify.Notice], by names of the upstream's
	// numbers.
	Numbers map[string]*upstream.Expr
	// Concurrency is the greatest number of notifications that are passed on at once.
	Concurrency int
}

type fileNotifications struct {
	// Listen is the address of the listener, host:port. Default: none.
	Listen address `key:"listen"`
	// Path is the only path that is taken, with its query, such as /notify. Default: any.
	Path string `key:"path"`
	// Forward is the merchant's URL: scheme, host, and the path in front of that of the
	// notification, if any.
	Forward string     `key:"forward"`
	Verify  fileVerify `key:"verify"`
	// Numbers are request expressions over the notification, by names of the upstream's
	// numbers. Default: the preset's.
	Numbers map[string]string `key:"numbers"`
	// Timeout bounds the merchant's answer. Default 10s.
	Timeout *duration `key:"timeout"`
	// Concurrency is the greatest number of notifications that are passed on at once.
	// Default 64.
	Concurrency *int `key:"concurrency"`
}

type fileVerify struct {
	// Kind is alipay, wechatpay-v3, stripe, adyen or paypal.
	Kind string `key:"kind"`
	// Keys refer to the platform's public RSA keys or certificates (alipay, wechatpay-v3,
	// paypal), to signing secrets (stripe) or HMAC keys (adyen): file:PATH or env:NAME.
	Keys []string `key:"keys"`
	// Secret refers to the APIv3 key of wechatpay-v3: file:PATH (mode 0600) or env:NAME.
	Secret string `key:"secret"`
	// WebhookID is the id of the webhook at PayPal: paypal.
	WebhookID string `key:"webhook_id"`
}

// given reports whether the file has more of the section than a preset gives.
func (f fileNotifications) given() bool {
	return f.Listen != "" || f.Path != "" || f.Forward != "" || f.Verify.Kind != "" || len(f.Verify.Keys) > 0 || f.Verify.Secret != "" || f.Verify.WebhookID != "" || f.Timeout != nil || f.Concurrency != nil
}

// convert returns nil if there is no listener. The names of numbers must be those of the upstream.
func (f fileNotifications) convert(faults *faultList, path string, u *scheduler.Upstream, taken *[]listenAddress) *Notifications {
	numbers := f.numbers(faults, path+".numbers", slices.Sorted(maps.Keys(u.Numbers)))
	if !f.given() {
		return nil
	}
	n := &Notifications{Listen: string(f.Listen), Path: f.Path, Numbers: numbers, Concurrency: notificationsAtOnce}
	if f.Listen == "" {
		faults.add(path+".listen", "is missing; give the address to which the platform's notifications come, such as 127.0.0.1:8091")
	} else {
		listen(faults, path+".listen", n.Listen, taken)
	}
	if f.Path != "" {
		if err := (&upstream.Request{Method: "POST", Target: f.Path}).Check(); err != nil {
			faults.add(path+".path", "%w", errors.New(strings.Replace(err.Error(), "target", "path", 1)))
		}
	}
	positive(faults, path+".concurrency", f.Concurrency, &n.Concurrency)
	atMost(faults, path+".concurrency", n.Concurrency, mostNotifications)
	to := upstream.Config{Name: path, URL: f.Forward, Timeout: notificationTimeout, IdleTimeout: merchantIdle}
	positive(faults, path+".timeout", f.Timeout, &to.Timeout)
	atMost(faults, path+".timeout", to.Timeout, time.Hour)
	var err error
	if f.Forward == "" {
		faults.add(path+".forward", "is missing; give the URL of the merchant's server, such as http://127.0.0.1:9000")
	} else if n.Forward, err = upstream.New(to); err != nil {
		addFields(faults, path, err, "url", "forward")
	}
	if f.Verify.Kind == "" {
		faults.add(path+".verify.kind", "is missing; give one of: %s", strings.Join(notify.Kinds, ", "))
	} else if n.Verifier, err = f.Verify.verifier(faults); err != nil {
		addFields(faults, path+".verify", err, "", "")
	}
	return n
}

func (f fileVerify) verifier(faults *faultList) (notify.Verifier, error) {
	if faults.closed {
		return nil, notify.Check(notify.Config(f))
	}
	return notify.New(notify.Config(f))
}

// addFields adds the errors of fields below a path; the key of one field has another name.
func addFields(faults *faultList, path string, err error, field, key string) {
	for _, err := range split(err) {
		var of *upstream.FieldError
		if !errors.As(err, &of) {
			faults.add(path, "%w", err)
			continue
		}
		name := of.Field
		if name == field {
			name = key
		}
		faults.add(path+"."+name, "%w", of.Err)
	}
}

// numbers compiles the expressions. A name that the upstream's calls do not have finds none.
func (f fileNotifications) numbers(faults *faultList, path string, names []string) map[string]*upstream.Expr {
	all := make(map[string]*upstream.Expr)
	for _, name := range slices.Sorted(maps.Keys(f.Numbers)) {
		if !slices.Contains(names, name) {
			given := "calls have " + hint.List(names) + hint.Meant(name, names)
			if len(names) == 0 {
				given = "calls have none; give numbers of the upstream too"
			}
			faults.add(path+"."+name, "is no name in numbers of the upstream; %s", given)
			continue
		}
		if f.Numbers[name] == "" { // removes that of the preset
			continue
		}
		e, err := upstream.Compile(f.Numbers[name], upstream.Key)
		if err != nil {
			faults.add(path+"."+name, "%w", err)
			continue
		}
		all[name] = e
	}
	return all
}
