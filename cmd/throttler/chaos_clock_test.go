package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Limits over windows that slide, singly and in blocks, and by the calendar.
const (
	slidingLimits  = "    limits:\n      - {name: short, calls: 40, window: 1s}\n      - {name: long, calls: 90, window: 3s}\n"
	calendarLimits = "    limits:\n      - {name: minute, calls: 20, window: minute}\n      - {name: hour, calls: 30, window: hour}\n      - {name: day, calls: 35, window: day}\n"
	minuteLimit    = "    limits: [{name: minute, calls: 20, window: minute}]\n"
)

var (
	slidingBounds  = []bound{{40, time.Second, false}, {90, 3 * time.Second, false}}
	calendarBounds = []bound{{20, time.Minute, true}, {30, time.Hour, true}, {35, 24 * time.Hour, true}}
)

// some returns the first items of a list, and all of them with -chaos.
func some[T any](all []T, n int) []T {
	if *chaos {
		return all
	}
	return all[:n]
}

// TestChaosClockAtRestart puts the wall clock back, or forward, while no process runs. The
// upstream counts by a clock of its own.
func TestChaosClockAtRestart(t *testing.T) {
	for _, step := range some([]time.Duration{-time.Hour, 25 * time.Hour, -10 * time.Second, -25 * time.Hour, 10 * time.Second, time.Hour}, 1) {
		for _, clean := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, clean stop: %v", step, clean), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, stepping, slidingLimits)
				r.start()
				r.submit(250)
				r.arrived(60)
				r.stop(clean)
				before := r.bank.count()
				setClock(t, r.config, step)
				r.start()
				r.submit(max(0, before+60-250)) // where a slow machine has sent all of them
				r.arrived(before + 60)
				r.judge(slidingBounds...)
				r.stop(true)
			})
			t.Run(fmt.Sprintf("%v, clean stop: %v, by the calendar", step, clean), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, stepping, calendarLimits)
				r.start()
				r.submit(100)
				r.arrived(20)
				r.stop(clean)
				setClock(t, r.config, step.Truncate(time.Minute))
				r.start()
				time.Sleep(3 * time.Second) // nothing is to come
				r.judge(calendarBounds...)
				r.stop(true)
			})
		}
	}
}

// TestChaosClockWhileRunning puts the wall clock back and forward under load, by whole units
// for limits by the calendar, so that the upstream's minute is the sidecar's.
func TestChaosClockWhileRunning(t *testing.T) {
	steps := []time.Duration{10 * time.Second, time.Hour, 25 * time.Hour, 31 * 24 * time.Hour}
	t.Run("sliding", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stepping, slidingLimits)
		r.start()
		r.submit(250)
		draw := rand.New(rand.NewPCG(1, 13))
		for r.bank.count() < 240 {
			setClock(t, r.config, steps[draw.IntN(len(steps))]*time.Duration(draw.IntN(3)-1))
			r.arrived(min(240, r.bank.count()+1+draw.IntN(20)))
		}
		r.judge(slidingBounds...)
		r.stop(true)
	})
	t.Run("by the calendar", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stepping, calendarLimits)
		r.start()
		r.submit(100)
		r.arrived(20)
		for _, ahead := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 0, -24 * time.Hour, -time.Minute, 31 * 24 * time.Hour} {
			setClock(t, r.config, ahead)
			time.Sleep(300 * time.Millisecond) // nothing is to come
		}
		r.stop(false)
		setClock(t, r.config, -time.Hour)
		r.start()
		time.Sleep(time.Second)
		r.judge(calendarBounds...)
		r.stop(true)
	})
	if !*chaos {
		return
	}
	// A clock that was wrong for two seconds shuts no limit: see quota's TestWrongClock.
	t.Run("an hour ahead for two seconds", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stepping, minuteLimit)
		r.start()
		r.submit(19)
		r.arrived(19)
		setClock(t, r.config, time.Hour)
		r.submit(50)
		time.Sleep(2 * time.Second)
		setClock(t, r.config, 0)
		r.arrived(40)
		r.judge(bound{20, time.Minute, true})
		r.stop(true)
	})
}
