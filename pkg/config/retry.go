package config

import (
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileIdempotency struct {
	// Header names the header of an idempotency key: calls that have it are repeatable.
	Header string `key:"header"`
	// Field names a parameter, or a JSON path of the body: calls that have it are
	// repeatable.
	Field string `key:"field"`
	// Retention is the time after the first sending within which a repeat is
	// recognised. Default: without end.
	Retention *duration `key:"retention"`
	// Same is an expression: requests under one idempotency key are the same if it
	// gives the same value for them. Default: the whole request without its time,
	// client, trace and signature.
	Same string `key:"same"`
}

func (f fileIdempotency) convert(faults *faultList, path string) upstream.Idempotency {
	to := upstream.Idempotency{Header: f.Header, Field: f.Field, Same: f.Same}
	if f.Header != "" && !headerName.MatchString(f.Header) {
		faults.add(path+".header", "%q is not a header name", f.Header)
	}
	positive(faults, path+".retention", f.Retention, &to.Retention)
	return to
}

type fileRetry struct {
	// Attempts is the greatest number of a call's attempts with unknown outcome. Default 4.
	Attempts  *int `key:"attempts"`
	fileCurve `key:",squash"`
	// Budget is the number of repeats after unknown outcomes per first sending, above 0
	// and at most 1. Default: no bound.
	Budget *float64 `key:"budget"`
	// Limited is the delay of limited calls, if neither the answer nor the rule gives
	// one. Default: as above.
	Limited *fileCurve `key:"limited"`
}

func (f fileRetry) convert(faults *faultList, path string) retry.Policy {
	var to retry.Policy
	positive(faults, path+".attempts", f.Attempts, &to.Attempts)
	to.Curve = f.fileCurve.convert(faults, path)
	if f.Limited != nil {
		limited := f.Limited.convert(faults, path+".limited")
		to.Limited = &limited
	}
	if f.Budget != nil {
		if to.Share = *f.Budget; !(to.Share > 0) || to.Share > 1 {
			faults.add(path+".budget", "is %v, must be above 0 and at most 1: repeats per first sending", to.Share)
		}
	}
	return to
}

type fileCurve struct {
	// Backoff is exponential, linear or decorrelated, each with jitter. Default exponential.
	Backoff string `key:"backoff"`
	// Min is the first delay. Jitter takes up to half of it off, unless the backoff is
	// decorrelated. Default 500ms.
	Min *duration `key:"min"`
	// Max is the longest delay. Default 1m.
	Max *duration `key:"max"`
}

func (f fileCurve) convert(faults *faultList, path string) retry.Curve {
	var to retry.Curve
	positive(faults, path+".min", f.Min, &to.Min)
	positive(faults, path+".max", f.Max, &to.Max)
	switch f.Backoff {
	case "", "exponential":
		to.Backoff = retry.Exponential
	case "linear":
		to.Backoff = retry.Linear
	case "decorrelated":
		to.Backoff = retry.Decorrelated
	default:
		oneOf(faults, path+".backoff", f.Backoff, "exponential", "linear", "decorrelated")
	}
	return to
}
