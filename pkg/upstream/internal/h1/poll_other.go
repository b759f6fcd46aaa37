//go:build !unix

package h1

// pollable is false: an idle connection that the upstream has closed fails at its next request.
const pollable = false

func receive(uintptr, []byte) (int, error) { return 0, errNothing }
