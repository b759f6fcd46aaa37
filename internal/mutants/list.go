package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed survivors.txt
var list string

// readList returns the reasons of the list by the keys of their mutants.
func readList() (map[string]string, error) {
	reasons := map[string]string{}
	var keys []string // that wait for their reason
	for line := range strings.Lines(list) {
		text := strings.TrimSpace(line)
		switch _, known := reasons[text]; {
		case text == "" || strings.HasPrefix(line, "#"):
		case line[0] == '\t':
			for _, key := range keys {
				reasons[key] = text
			}
			keys = nil
		case known:
			return nil, fmt.Errorf("survivors.txt lists a mutant twice: %s", text)
		default:
			keys = append(keys, text)
			reasons[text] = ""
		}
	}
	if len(keys) > 0 {
		return nil, fmt.Errorf("survivors.txt has no reason, in a line that begins with a tab, after: %s", keys[0])
	}
	return reasons, nil
}

// judge compares the mutants that were run with the list, and returns a row of the table.
// With whole, also the package's shares must be high enough.
func (p *pkg) judge(listed map[string]string, whole bool) (row string, fine bool) {
	fine = true
	seen, reached := 0, 0
	for _, m := range p.chosen {
		if m.reached {
			reached++
		}
		if m.seenBy != "" {
			seen++
		}
		switch _, known := listed[m.key()]; {
		case known && m.seenBy != "":
			fmt.Printf("LISTED, but seen by %s: take it off survivors.txt: %s\n", m.seenBy, m.place())
			fine = false
		case !known && m.seenBy == "":
			fmt.Printf("%s, and survivors.txt gives no reason: %s\n", m.verdict(), m.place())
			fine = false
		}
	}
	all := len(p.chosen)
	seenShare, reachedShare := share(seen, reached), share(reached, all)
	if whole && (seenShare < mustSee || reachedShare < mustReach) {
		fmt.Printf("%s: too few mutants are seen or reached: at least %.0f%% of those reached, and %.0f%% of all\n", p.pkg, 100*mustSee, 100*mustReach)
		fine = false
	}
	return fmt.Sprintf("%-14s %7d %6d %8d %11d %6.1f%% %6.1f%%", p.pkg, all, seen, reached-seen, all-reached, 100*seenShare, 100*reachedShare), fine
}

func share(n, of int) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}
