// Package sdk tests Throttler with client libraries of payment platforms that know
// nothing of it, through the real binary, against gateways that verify signatures
// and count arrivals. make sdk runs those in Go, make sdk-node those in JavaScript.
package sdk
