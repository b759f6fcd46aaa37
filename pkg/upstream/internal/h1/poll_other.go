//go:build !unix

package h1

// pollable is false: no connection is kept, as one that the upstream has closed would fail at its
// next request.
const pollable = false

func receive(uintptr, []byte) (int, error) { return 0, errNothing }
