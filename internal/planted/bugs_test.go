package main

import (
	"testing"
)

// Each bug must still fit the file that it changes: a change of the code takes its bugs along.
func TestBugsFit(t *testing.T) {
	t.Chdir("../..")
	for _, s := range suites {
		for _, b := range s.bugs {
			if _, err := b.changed(); err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
		}
	}
}
