package preview

import (
	"fmt"
	"strings"
)

// DefaultSeed is that of a command line without one.
const DefaultSeed = 1

// A Command is the command line of a preview.
type Command struct {
	Files  []string // configurations: one, or two to be compared
	Load   []string // a file, or settings
	FailIf []string
	Options
}

// String returns the command line, for a shell.
func (c Command) String() string {
	words := []string{"throttler", "plan"}
	for i, file := range c.Files {
		words = append(words, []string{"-c", "--compare"}[min(i, 1)], file)
	}
	for _, load := range c.Load {
		words = append(words, "--load", load)
	}
	words = append(words, "--rtt", c.RoundTrip.String())
	if c.Spread > 0 {
		words = append(words, "--rtt-spread", c.Spread.String())
	}
	if c.Seed != DefaultSeed {
		words = append(words, "--seed", fmt.Sprint(c.Seed))
	}
	for _, condition := range c.FailIf {
		words = append(words, "--fail-if", condition)
	}
	for i, word := range words {
		words[i] = Quoted(word)
	}
	return strings.Join(words, " ")
}

// Quoted returns a text as an argument of a shell.
func Quoted(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@=,+", r))
	}) < 0 && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
