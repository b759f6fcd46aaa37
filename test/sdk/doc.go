// Package sdk tests Throttler with unchanged client libraries of payment platforms,
// through the real binary, against gateways that verify signatures and count
// arrivals. make sdk runs the libraries in Go, make sdk-scripts those in JavaScript and Python.
package sdk
