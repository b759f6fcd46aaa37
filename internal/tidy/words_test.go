package tidy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Comments name things: a pronoun as a subject makes its reader guess. Bounds are per
// 1,000 words of comment of a package and its tests.
const (
	maxWho  = 1
	maxWhat = 2
)

var (
	word = regexp.MustCompile(`[A-Za-z]+(?:['’][a-z]+)?`)
	who  = []string{"who", "whoever", "somebody", "someone", "nobody", "anybody", "anyone", "everybody", "everyone"}
	what = []string{"what", "whatever"}
)

// TestCommentsNameThings counts pronouns in comments.
func TestCommentsNameThings(t *testing.T) {
	type count struct{ words, who, what int }
	counts := make(map[string]*count)
	for _, s := range sources(t, func(string) bool { return true }) {
		pkg := filepath.ToSlash(filepath.Dir(s.path))
		if counts[pkg] == nil {
			counts[pkg] = &count{}
		}
		c := counts[pkg]
		for _, group := range s.file.Comments {
			for _, w := range word.FindAllString(group.Text(), -1) {
				c.words++
				switch w = strings.ToLower(w); {
				case slices.Contains(who, w):
					c.who++
				case slices.Contains(what, w):
					c.what++
				}
			}
		}
	}
	for pkg, c := range counts {
		if bound := max(1, maxWho*c.words/1000); c.who > bound {
			t.Errorf("%s: %d of %v in %d words of comment, at most %d; name the thing", pkg, c.who, who, c.words, bound)
		}
		if bound := max(2, maxWhat*c.words/1000); c.what > bound {
			t.Errorf("%s: %d of %v in %d words of comment, at most %d; name the thing", pkg, c.what, what, c.words, bound)
		}
	}
}
