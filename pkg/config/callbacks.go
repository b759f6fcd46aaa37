package config

import (
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileCallback struct {
	// URL is the target's, whole.
	URL string `key:"url"`
	// Secret refers to the secret of Standard Webhooks: file:PATH (mode 0600) or env:NAME.
	Secret string `key:"secret"`
	// Timeout bounds an attempt. Default 30s.
	Timeout *duration `key:"timeout"`
	// PerSecond is the greatest number of webhooks sent in a second. Default 50.
	PerSecond *int              `key:"per_second"`
	Retry     fileCallbackRetry `key:"retry"`
}

type fileCallbackRetry struct {
	// Attempts is the greatest number of attempts of a webhook. Default 12.
	Attempts  *int `key:"attempts"`
	fileCurve `key:",squash"`
}

func (f fileCallback) convert(faults *faultList, path string) scheduler.Callback {
	c := scheduler.Callback{Config: upstream.Config{URL: f.URL}}
	positive(faults, path+".timeout", f.Timeout, &c.Timeout)
	positive(faults, path+".per_second", f.PerSecond, &c.PerSecond)
	positive(faults, path+".retry.attempts", f.Retry.Attempts, &c.Retry.Attempts)
	c.Retry.Curve = f.Retry.fileCurve.convert(faults, path+".retry")
	if f.Secret == "" {
		return c // the scheduler reports that it is missing
	}
	c.Signer = unusable{} // keeps the scheduler from reporting a missing secret
	if faults.closed {
		faults.reference(path+".secret", f.Secret)
		return c
	}
	s, err := signer.NewWebhook(f.Secret)
	if err != nil {
		faults.add(path+".secret", "%w", err)
		return c
	}
	c.Signer = s
	return c
}

// unusable takes the place of a signer that could not be made, or must not be.
type unusable struct{ upstream.Signer }
