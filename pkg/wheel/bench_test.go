package wheel

import (
	"math/rand/v2"
	"testing"
	"time"
)

// delays are up to an hour, so that several levels are in use.
func delays() []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]time.Duration, 1<<16)
	for i := range all {
		all[i] = time.Minute + time.Duration(random.Int64N(int64(time.Hour)))
	}
	return all
}

func filledWheel(pending int) (*Wheel[uint64], []Handle, []time.Duration) {
	d := delays()
	w := New[uint64](time.Millisecond)
	handles := make([]Handle, pending)
	for i := range handles {
		handles[i] = w.Insert(d[i%len(d)], uint64(i))
	}
	return w, handles, d
}

func BenchmarkWheelInsert1MPending(b *testing.B) {
	w, _, d := filledWheel(1_000_000)
	added := make([]Handle, 0, 100_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if len(added) == cap(added) {
			b.StopTimer()
			for _, h := range added {
				w.Cancel(h)
			}
			added = added[:0]
			b.StartTimer()
		}
		added = append(added, w.Insert(d[i%len(d)], 0))
	}
}

func BenchmarkWheelInsertCancel1MPending(b *testing.B) {
	w, _, d := filledWheel(1_000_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Cancel(w.Insert(d[i%len(d)], 0))
	}
}

func BenchmarkWheelChurn1MPending(b *testing.B) {
	w, handles, d := filledWheel(1_000_000)
	random := rand.New(rand.NewPCG(3, 4))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := random.IntN(len(handles))
		w.Cancel(handles[k])
		handles[k] = w.Insert(d[i%len(d)], 0)
	}
}

func BenchmarkWheelReschedule1MPending(b *testing.B) {
	w, handles, d := filledWheel(1_000_000)
	random := rand.New(rand.NewPCG(3, 4))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Reschedule(handles[random.IntN(len(handles))], d[i%len(d)])
	}
}

// BenchmarkWheelFire is the whole life of a timeout: in, down the levels, out.
func BenchmarkWheelFire(b *testing.B) {
	w := New[uint64](time.Millisecond)
	d := delays()
	now, fired := time.Duration(0), 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Insert(now+d[i%len(d)]%(10*time.Second), 0)
		if i%100 == 0 {
			now += 10 * time.Millisecond
			w.Advance(now, func(uint64) { fired++ })
		}
	}
}

func filledTimer(b *testing.B, pending int) (*Timer[func()], []Timeout[func()], []time.Duration) {
	d := delays()
	timer := NewTimer(Config{})
	b.Cleanup(func() { timer.Stop(background) })
	timeouts := make([]Timeout[func()], pending)
	for i := range timeouts {
		timeouts[i], _ = timer.NewTimeout(nothing, d[i%len(d)])
	}
	return timer, timeouts, d
}

func BenchmarkTimerSchedule1MPending(b *testing.B) {
	timer, _, d := filledTimer(b, 1_000_000)
	added := make([]Timeout[func()], 0, 100_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if len(added) == cap(added) {
			b.StopTimer()
			for _, o := range added {
				o.Cancel()
			}
			added = added[:0]
			b.StartTimer()
		}
		o, _ := timer.NewTimeout(nothing, d[i%len(d)])
		added = append(added, o)
	}
}

func BenchmarkTimerScheduleCancel1MPending(b *testing.B) {
	timer, _, d := filledTimer(b, 1_000_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o, _ := timer.NewTimeout(nothing, d[i%len(d)])
		o.Cancel()
	}
}

func BenchmarkTimerChurn1MPending(b *testing.B) {
	timer, timeouts, d := filledTimer(b, 1_000_000)
	random := rand.New(rand.NewPCG(3, 4))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := random.IntN(len(timeouts))
		timeouts[k].Cancel()
		timeouts[k], _ = timer.NewTimeout(nothing, d[i%len(d)])
	}
}

// BenchmarkAfterFuncScheduleCancel1MPending is the standard library's figure for comparison.
func BenchmarkAfterFuncScheduleCancel1MPending(b *testing.B) {
	d := delays()
	timers := make([]*time.Timer, 1_000_000)
	for i := range timers {
		timers[i] = time.AfterFunc(d[i%len(d)], nothing)
	}
	b.Cleanup(func() {
		for _, t := range timers {
			t.Stop()
		}
	})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		time.AfterFunc(d[i%len(d)], nothing).Stop()
	}
}
