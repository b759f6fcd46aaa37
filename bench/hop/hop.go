package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// straight is the name of the upstream without a proxy.
const straight = "straight to the upstream"

// A cell has the figures of all proxies for one number of connections and size of body.
type cell struct {
	connections, body int
	straight          figure
	rows              []row
}

// A row has the figures of a proxy: medians of the rounds.
type row struct {
	proxy string
	figure
	added50, added99 time.Duration // latency beyond that of the upstream in the same round
}

// hops measures all proxies. In a round each proxy is measured once in each cell, one
// after another, so that other load meets all alike. Each round has new processes for each size of body.
func (p *plan) hops() (names []string, cells []cell, err error) {
	chosen, err := p.choose()
	if err != nil {
		return nil, nil, err
	}
	for _, one := range chosen {
		names = append(names, one.name)
	}
	var rounds [][][]figure // of a round, a cell, and the upstream and the proxies
	for n := range p.rounds {
		began := time.Now()
		figures, err := p.round(chosen)
		if err != nil {
			return nil, nil, err
		}
		rounds = append(rounds, figures)
		fmt.Fprintf(os.Stderr, "round %d of %d: %v\n", n+1, p.rounds, time.Since(began).Round(time.Second))
	}
	i := 0
	for _, body := range p.bodies {
		for _, connections := range p.connections {
			var of [][]figure
			for _, r := range rounds {
				of = append(of, r[i])
			}
			cells = append(cells, newCell(connections, body, names, of))
			i++
		}
	}
	return names, cells, nil
}

// round measures each proxy in each cell.
func (p *plan) round(chosen []proxy) (figures [][]figure, err error) {
	for _, body := range p.bodies {
		some, err := p.turn(chosen, body)
		if err != nil {
			return nil, fmt.Errorf("body of %d bytes: %w", body, err)
		}
		figures = append(figures, some...)
	}
	return figures, nil
}

// turn starts the upstream and the proxies, and measures them in the cells of one size of body.
func (p *plan) turn(chosen []proxy, body int) (figures [][]figure, err error) {
	names, running := []string{straight}, []*hop(nil)
	defer func() {
		for _, h := range slices.Backward(running) {
			err = errors.Join(err, h.process.stop())
		}
	}()
	upstream, err := openUpstream(body)
	if err != nil {
		return nil, err
	}
	running = append(running, upstream)
	for _, one := range chosen {
		h, err := one.open(one.name, upstream.addr)
		if err != nil {
			return nil, err
		}
		names, running = append(names, one.name), append(running, h)
	}
	for _, connections := range p.connections {
		row := make([]figure, len(running))
		for i, h := range running {
			if row[i], err = measure(h, connections, body, p.time); err != nil {
				return nil, fmt.Errorf("%s, %d connections: %w; its output: %s", names[i], connections, err, &h.process.output)
			}
		}
		figures = append(figures, row)
	}
	return figures, nil
}

// newCell makes the medians of the rounds. The first figure of a round is the upstream's.
func newCell(connections, body int, names []string, rounds [][]figure) cell {
	c := cell{connections: connections, body: body, straight: medians(rounds, 0)}
	for i, name := range names {
		c.rows = append(c.rows, row{
			proxy:   name,
			figure:  medians(rounds, i+1),
			added50: median(rounds, func(r []figure) time.Duration { return r[i+1].p50 - r[0].p50 }),
			added99: median(rounds, func(r []figure) time.Duration { return r[i+1].p99 - r[0].p99 }),
		})
	}
	return c
}

// medians returns the median of each measure of one proxy.
func medians(rounds [][]figure, i int) figure {
	return figure{
		cpu:       median(rounds, func(r []figure) time.Duration { return r[i].cpu }),
		rate:      median(rounds, func(r []figure) float64 { return r[i].rate }),
		p50:       median(rounds, func(r []figure) time.Duration { return r[i].p50 }),
		p99:       median(rounds, func(r []figure) time.Duration { return r[i].p99 }),
		allocated: median(rounds, func(r []figure) float64 { return r[i].allocated }),
	}
}

func median[R any, T cmp.Ordered](rounds []R, of func(R) T) T {
	values := make([]T, len(rounds))
	for i, r := range rounds {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
