package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTiny runs all mutants of a small package: each is seen by its test, but for those that
// no test can see or reaches.
func TestTiny(t *testing.T) {
	const file = "internal/mutants/testdata/tiny/tiny.go"
	p, err := load(target{pkg: "internal/mutants/testdata/tiny"})
	if err != nil {
		t.Fatal(err)
	}
	p.chosen = p.mutants
	if err := p.run(false); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"package: 2 * time.Second → 2 / time.Second":                             "TestCounter",
		"counter.add: c.n++ → c.n--":                                             "TestCounter",
		"counter.add: c.total += n * grain → c.total -= n * grain":               "TestCounter",
		"counter.add: c.total += n * grain → c.total = n * grain":                "TestCounter",
		"counter.add: n * grain → n / grain":                                     "TestCounter",
		"sum: i < len(list) → i >= len(list)":                                    "TestSum",
		"sum: i < len(list) → i <= len(list)":                                    "TestSum",
		"sum: i++ → i--":                                                         "TestSum",
		"sum: list[i] == until → list[i] != until":                               "TestSum",
		"sum: break → continue":                                                  "TestSum",
		"sum: list[i]%2 != 0 || list[i] < 0 → (list[i]%2 != 0) && (list[i] < 0)": "TestSum",
		"sum: list[i]%2 != 0 → (list[i]%2) == 0":                                 "TestSum",
		"sum: list[i]%2 → list[i] * 2":                                           "TestSum",
		"sum: list[i] < 0 → list[i] >= 0":                                        "TestSum",
		"sum: list[i] < 0 → list[i] <= 0":                                        "SURVIVED",
		"sum: continue → break":                                                  "TestSum",
		"sum: s += list[i] → s -= list[i]":                                       "TestSum",
		"sum: s += list[i] → s = list[i]":                                        "TestSum",
		"sign: n > 0 && !even(n) → (n > 0) || !even(n)":                          "TestSign",
		"sign: n > 0 → n <= 0":                                                   "TestSign",
		"sign: n > 0 → n >= 0":                                                   "SURVIVED",
		"sign: !even(n) → even(n)":                                               "TestSign",
		"sign: n < 0 → n >= 0":                                                   "TestSign",
		"sign: n < 0 → n <= 0":                                                   "SURVIVED",
		"sign: -1 → 1":                                                           "TestSign",
		"even: n&1 == 0 → (n&1) != 0":                                            "TestSign",
		"even: n&1 → n | 1":                                                      "TestSign",
		"ask: yes() → !yes()":                                                    "TestSign",
		"ask: n = 1 << 3 → nothing":                                              "TestSign",
		"ask: 1 << 3 → 1 >> 3":                                                   "TestSign",
		"unused: n - 1 → n + 1":                                                  "NOT REACHED",
	}
	got := map[string]string{}
	for _, m := range p.chosen {
		got[strings.TrimPrefix(m.key(), file+" ")] = strings.TrimPrefix(m.verdict(), "by ")
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			t.Errorf("%q: %q, want %q", key, got[key], want[key])
		}
	}
	for key := range got {
		if want[key] == "" {
			t.Errorf("also has %q", key)
		}
	}
	// A survivor that the list lacks fails, and one of the list that is seen.
	listed := map[string]string{}
	for _, m := range p.chosen {
		if m.seenBy == "" {
			listed[m.key()] = "reason"
		}
	}
	if row, fine := p.judge(listed, false); !fine {
		t.Errorf("all survivors are listed, and the verdict is bad: %s", row)
	}
	if _, fine := p.judge(listed, true); fine {
		t.Error("too few are seen, and the verdict is good")
	}
	delete(listed, file+" sign: n > 0 → n >= 0")
	if _, fine := p.judge(listed, false); fine {
		t.Error("a survivor is not listed, and the verdict is good")
	}
	listed[file+" sign: n > 0 → n >= 0"] = "reason"
	listed[file+" sign: -1 → 1"] = "reason"
	if _, fine := p.judge(listed, false); fine {
		t.Error("a mutant that is seen is listed, and the verdict is good")
	}
}

// TestListIsOfMutants: each entry of the list has a reason, and is a mutant that there is.
func TestListIsOfMutants(t *testing.T) {
	listed, err := readList()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		p, err := load(target)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range p.mutants {
			delete(listed, m.key())
		}
	}
	for key := range listed {
		t.Errorf("survivors.txt lists a mutant that there is not: %s", key)
	}
}
