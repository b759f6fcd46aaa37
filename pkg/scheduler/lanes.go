package scheduler

// The lanes and flows of a planner come with their first call and go with their last.

// lane returns the lane of a call, a new one if there is none.
func (p *planner) lane(c *call) *lane {
	l := p.lanes[c.route.id]
	if l == nil {
		l = &lane{route: c.route, flow: p.flow(c.route.flow)}
		for _, n := range c.route.needs {
			id := gateID{n.Limit, n.Key}
			g := p.gates[id]
			if g == nil {
				g = newGate(p, id)
				p.gates[id] = g
				p.keys[id.limit]++
			}
			g.lanes++
			l.gates = append(l.gates, g)
		}
		p.lanes[c.route.id] = l
	}
	c.route = l.route // calls that are alike share it
	return l
}

// drop forgets an empty lane, and what only it needed.
func (p *planner) drop(l *lane) {
	delete(p.lanes, l.route.id)
	for _, g := range l.gates {
		if g.lanes--; g.lanes == 0 {
			p.wheel.Cancel(g.timeout)
			delete(p.gates, g.id)
			p.keys[g.id.limit]--
		}
	}
}

func (p *planner) flow(name string) *flow {
	f := p.flows[name]
	if f == nil {
		f = &flow{name: name, weight: p.weight(name), queued: make([]int, len(p.limits)+1)}
		p.flows[name] = f
	}
	return f
}

// rouse lets a flow take part again: what it did not use meanwhile is gone.
func (p *planner) rouse(f *flow) {
	if p.resting.contains(f) {
		p.resting.remove(f)
	}
	if f.waiting == 0 {
		f.virtual = max(f.virtual, p.virtual)
	}
}

// begin forgets what flows have had: nothing waited for a while, so nobody had
// less because of it.
func (p *planner) begin() {
	p.virtual = 0
	clear(p.flows)
	clear(p.resting.items)
	p.resting.items = p.resting.items[:0]
}

// awake forgets the flows that have rested enough.
func (p *planner) awake() {
	for p.resting.Len() > 0 && p.resting.first().virtual <= p.virtual {
		delete(p.flows, popFirst(&p.resting).name)
	}
}
