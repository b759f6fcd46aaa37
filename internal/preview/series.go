package preview

import "time"

// maxSteps is the greatest number of steps of a series. Beyond it two become one.
const maxSteps = 2000

// firstStep is the length of a step at the beginning of a load.
const firstStep = 10 * time.Millisecond

// A Series has counts over time, in steps of equal length.
type Series struct {
	Step     Millis         `json:"step_ms"`
	Arrivals []int          `json:"arrivals"`
	Sends    []int          `json:"sends"`
	Waiting  []int          `json:"waiting"` // the greatest number
	Limits   []*LimitSeries `json:"limits"`

	step   time.Duration
	length int
}

// A LimitSeries has counts of a limit, in the steps of its Series.
type LimitSeries struct {
	Upstream string `json:"upstream"`
	Limit    string `json:"limit"`
	Queued   []int  `json:"queued"` // calls that waited for this limit, on average
	Most     []int  `json:"most"`   // permits of the busiest key used within a window, the greatest number
}

// at returns the step of an instant.
func (s *Series) at(t time.Duration) int {
	for t/s.step >= maxSteps {
		s.halve()
	}
	i := int(t / s.step)
	if i >= s.length {
		s.each(func(x []int, _ func(a, b int) int) []int {
			return append(x, make([]int, i+1-s.length)...)
		})
		s.length = i + 1
	}
	return i
}

// halve makes one step of two.
func (s *Series) halve() {
	s.step *= 2
	s.each(func(x []int, join func(a, b int) int) []int {
		n := 0
		for i := 0; i < len(x); i += 2 {
			v := x[i]
			if i+1 < len(x) {
				v = join(v, x[i+1])
			}
			x[n] = v
			n++
		}
		return x[:n]
	})
	s.length = (s.length + 1) / 2
}

// each replaces every line of the series by f of it. Join returns the value of two steps
// together.
func (s *Series) each(f func(x []int, join func(a, b int) int) []int) {
	s.Arrivals, s.Sends, s.Waiting = f(s.Arrivals, sum), f(s.Sends, sum), f(s.Waiting, most)
	for _, l := range s.Limits {
		l.Queued, l.Most = f(l.Queued, mean), f(l.Most, most)
	}
}

// The values of two steps together.
func sum(a, b int) int  { return a + b }
func most(a, b int) int { return max(a, b) }
func mean(a, b int) int { return (a + b + 1) / 2 }
