package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// Exit codes of all commands.
const (
	exitFailed      = 1   // another failure; a difference, a failed case, a condition that holds
	exitUsage       = 2   // the command line is wrong
	exitNotFound    = 3   // there is no such call, upstream or limit
	exitRefused     = 4   // the state of the call, or a guard, refuses it, or a part of a batch
	exitUnreachable = 5   // no sidecar answers
	exitForbidden   = 6   // the caller may not
	exitConfig      = 7   // the configuration has faults
	exitInterrupted = 130 // by a signal, as shells have it
)

// A codedError is an error with the exit code of its command.
type codedError struct {
	error
	code int
}

func (e *codedError) Unwrap() error { return e.error }

// coded gives an error an exit code; nil stays nil.
func coded(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{err, code}
}

// exitCode returns the exit code for the error of a command.
func exitCode(err error) int {
	var with *codedError
	var faults config.Errors
	switch {
	case err == nil:
		return 0
	case errors.As(err, &with):
		return with.code
	case errors.As(err, &faults):
		return exitConfig
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// codeOf returns the exit code for the status of an answer of the admin API.
func codeOf(status int) int {
	switch status {
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity:
		return exitRefused
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest:
		return exitForbidden
	}
	return exitFailed
}
