// Package tiny has a place for each kind of mutant.
package tiny

import "time"

type number int

type counter struct {
	n     number
	total int
}

var wait = 2 * time.Second

const grain = 10 / 2 // constants have no mutants

func (c *counter) add(n int) {
	c.n++
	c.total += n * grain
}

func sum(list []int, until int) (s int) {
	for i := 0; i < len(list); i++ {
		if list[i] == until {
			break
		}
		if list[i]%2 != 0 || list[i] < 0 {
			continue
		}
		s += list[i]
	}
	return s
}

func sign(n int) int {
	switch {
	case n > 0 && !even(n):
		return 1
	case n < 0:
		return -1
	}
	return 0
}

func even(n int) bool { return n&1 == 0 }

func ask(yes func() bool) (n uint8) {
	if yes() {
		n = 1 << 3
	}
	return n
}

func unused(n int) int { return n - 1 }
