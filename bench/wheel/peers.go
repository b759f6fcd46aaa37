package main

import (
	"sync/atomic"
	"time"

	russell "github.com/RussellLuo/timingwheel"
	antlabs "github.com/antlabs/timer"
	"github.com/zeromicro/go-zero/core/collection"

	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// timers has the operations of a peer. H is its handle of a timeout.
type timers[H any] interface {
	after(d time.Duration) H      // fires a function that does nothing
	fire(d time.Duration, id int) // calls the function given to open with id
	cancel(h H)                   //
	reset(h H, d time.Duration) H // in place if the peer can, otherwise cancel and after
}

// peers are the columns of the table, in order. Ratios are to the first.
var peers = []string{afterFunc, handler, function, passive, "RussellLuo", "antlabs", "go-zero", netty}

const (
	afterFunc = "time.AfterFunc"
	handler   = "wheel" // NewHandlerTimer
	function  = "wheel func"
	passive   = "wheel passive"
	netty     = "Netty"
	none      = "no timer" // in the idle row only: the Go runtime itself
)

// measure runs one cell of a peer in Go.
func measure(c cell, out results) {
	// The peer needs the function that records lateness.
	fired := func(int) {}
	var l *lateness
	if c.kind == "late" {
		l = newLateness(c)
		fired = l.fired
	}
	switch c.peer {
	case afterFunc:
		runCell(c, standard{fired}, l, out)
	case handler:
		runCell(c, ourHandler{wheel.NewHandlerTimer(fired, wheel.Config{})}, l, out)
	case function:
		runCell(c, ourFunc{wheel.NewTimer(wheel.Config{}), fired}, l, out)
	case passive:
		runCell(c, ourPassive{wheel.New[int](time.Millisecond)}, l, out)
	case "RussellLuo":
		w := russell.NewTimingWheel(time.Millisecond, 512)
		w.Start()
		runCell(c, russellLuo{w, fired}, l, out)
	case "antlabs":
		w := antlabs.NewTimer()
		go w.Run()
		time.Sleep(20 * time.Millisecond) // Run sets the wheel's origin
		runCell(c, ant{w, fired}, l, out)
	case "go-zero":
		w, err := collection.NewTimingWheel(time.Millisecond, 512, func(_, id any) {
			if id, ok := id.(int); ok {
				fired(id)
			}
		})
		if err != nil {
			panic(err)
		}
		runCell(c, goZero{w, new(atomic.Int64)}, l, out)
	case none:
		idle(out)
	default:
		panic("no such peer: " + c.peer)
	}
}

func runCell[H any](c cell, t timers[H], l *lateness, out results) {
	switch c.kind {
	case "ops":
		operations(t, c, out)
	case "late":
		l.run(t.fire, out)
	case "idle":
		t.after(time.Hour)
		idle(out)
	case "lock":
		longestCall(t, c, out)
	default:
		panic("no such kind of cell: " + c.kind)
	}
}

func nothing() {}

type standard struct{ fired func(int) }

func (standard) after(d time.Duration) *time.Timer { return time.AfterFunc(d, nothing) }
func (s standard) fire(d time.Duration, id int)    { time.AfterFunc(d, func() { s.fired(id) }) }
func (standard) cancel(t *time.Timer)              { t.Stop() }
func (standard) reset(t *time.Timer, d time.Duration) *time.Timer {
	t.Reset(d)
	return t
}

type ourHandler struct{ t *wheel.Timer[int] }

func (p ourHandler) after(d time.Duration) wheel.Timeout[int] { return must(p.t.NewTimeout(0, d)) }
func (p ourHandler) fire(d time.Duration, id int)             { must(p.t.NewTimeout(id, d)) }
func (p ourHandler) cancel(o wheel.Timeout[int])              { o.Cancel() }
func (p ourHandler) reset(o wheel.Timeout[int], d time.Duration) wheel.Timeout[int] {
	o.Reschedule(d)
	return o
}

type ourFunc struct {
	t     *wheel.Timer[func()]
	fired func(int)
}

func (p ourFunc) after(d time.Duration) wheel.Timeout[func()] {
	return must(p.t.NewTimeout(nothing, d))
}
func (p ourFunc) fire(d time.Duration, id int)   { must(p.t.NewTimeout(func() { p.fired(id) }, d)) }
func (p ourFunc) cancel(o wheel.Timeout[func()]) { o.Cancel() }
func (p ourFunc) reset(o wheel.Timeout[func()], d time.Duration) wheel.Timeout[func()] {
	o.Reschedule(d)
	return o
}

// ourPassive is a wheel with an owner that knows the time and needs no lock.
type ourPassive struct{ w *wheel.Wheel[int] }

func (p ourPassive) after(d time.Duration) wheel.Handle { return p.w.Insert(d, 0) }
func (p ourPassive) fire(d time.Duration, id int)       { p.w.Insert(d, id) }
func (p ourPassive) cancel(h wheel.Handle)              { p.w.Cancel(h) }
func (p ourPassive) reset(h wheel.Handle, d time.Duration) wheel.Handle {
	p.w.Reschedule(h, d)
	return h
}

type russellLuo struct {
	w     *russell.TimingWheel
	fired func(int)
}

func (p russellLuo) after(d time.Duration) *russell.Timer { return p.w.AfterFunc(d, nothing) }
func (p russellLuo) fire(d time.Duration, id int)         { p.w.AfterFunc(d, func() { p.fired(id) }) }
func (p russellLuo) cancel(t *russell.Timer)              { t.Stop() }
func (p russellLuo) reset(t *russell.Timer, d time.Duration) *russell.Timer {
	t.Stop()
	return p.after(d)
}

type ant struct {
	w     antlabs.Timer
	fired func(int)
}

func (p ant) after(d time.Duration) antlabs.TimeNoder { return p.w.AfterFunc(d, nothing) }
func (p ant) fire(d time.Duration, id int)            { p.w.AfterFunc(d, func() { p.fired(id) }) }
func (p ant) cancel(t antlabs.TimeNoder)              { t.Stop() }

// reset does not call antlabs' Reset: it takes the lock of the new slot under the lock
// of the old one, and so hangs if both are the same.
func (p ant) reset(t antlabs.TimeNoder, d time.Duration) antlabs.TimeNoder {
	t.Stop()
	return p.after(d)
}

type goZero struct {
	w    *collection.TimingWheel
	keys *atomic.Int64
}

func (p goZero) after(d time.Duration) int64 {
	key := p.keys.Add(1)
	p.w.SetTimer(key, nil, d)
	return key
}
func (p goZero) fire(d time.Duration, id int) { p.w.SetTimer(p.keys.Add(1), id, d) }
func (p goZero) cancel(key int64)             { p.w.RemoveTimer(key) }
func (p goZero) reset(key int64, d time.Duration) int64 {
	p.w.MoveTimer(key, d)
	return key
}

func must[H any](h H, err error) H {
	if err != nil {
		panic(err)
	}
	return h
}
