package workload

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Settings describes the settings of Generate, for help texts.
const Settings = `rate=100/s    calls per second (/m: minute, /h: hour), Poisson
for=60s       length; 1m if left out
bursts=50/10s besides, 50 calls at once every 10s
tenants=3     {tenant} is 1 to 3
keys=1000     {key} is 1 to 1000
zipf=1.1      makes low tenants and keys more frequent than high ones
upstream=, priority=, wait=, delay=, flow=, key.LIMIT=, cost.LIMIT=, method=, path=,
query.NAME=, form.NAME=, param.NAME=, header.NAME=, json.PATH=
              columns of a load, with {tenant}, {key} and {n} (1, 2, …) filled in;
              if no field of a limit is given, each call is under it with {key}`

// Generate makes a load of streams, for a valid configuration. A stream is a
// text of settings with spaces between: see [Settings]. Equal seeds give equal
// loads.
func Generate(streams []string, seed uint64, c scheduler.Config) (*Load, error) {
	g := &generator{}
	for i, text := range streams {
		s, err := newStream(text, rand.New(rand.NewPCG(seed, uint64(i))), c)
		if err != nil {
			return nil, &Error{text, 0, err}
		}
		g.streams = append(g.streams, s)
	}
	return newLoad(strings.Join(streams, "; "), g, c)
}

// IsGenerated reports whether a text is settings, not the name of a file.
func IsGenerated(text string) bool { return strings.Contains(text, "=") }

// generator merges streams.
type generator struct {
	streams []*stream
	at      time.Duration
}

func (g *generator) next(r *row) error {
	soonest := g.streams[0]
	for _, s := range g.streams[1:] {
		if s.at() < soonest.at() {
			soonest = s
		}
	}
	if soonest.at() == forever {
		return io.EOF
	}
	g.at = soonest.at()
	soonest.give(r)
	return nil
}

func (g *generator) done() float64 {
	length := time.Duration(1)
	for _, s := range g.streams {
		length = max(length, s.length)
	}
	return float64(g.at) / float64(length)
}

// A stream gives rows at random instants, and in bursts.
type stream struct {
	length time.Duration
	gap    float64 // mean, in nanoseconds; 0: no random instants
	burst  int
	every  time.Duration

	random      *rand.Rand
	tenant, key func() int
	columns     *columns
	templates   []string
	numbered    bool // a template has {n}
	rows        map[[2]int]*made

	poisson, bursting time.Duration // the next instants
	left              int           // calls of the present burst
	n                 int           // rows given
}

// made has the values of the rows of a tenant and key.
type made struct {
	values []value
	known  known
}

const forever = time.Duration(1<<63 - 1)

// newStream reads settings.
func newStream(text string, random *rand.Rand, c scheduler.Config) (*stream, error) {
	s := &stream{length: time.Minute, random: random, rows: make(map[[2]int]*made), poisson: forever, bursting: forever}
	tenants, keys, zipf := 1, 1, 0.0
	given, seen := map[string]string{"at": ""}, make(map[string]bool)
	for _, setting := range strings.Fields(text) {
		name, v, ok := strings.Cut(setting, "=")
		var err error
		switch {
		case !ok:
			err = errors.New("is not a setting; write name=value")
		case seen[name]:
			err = fmt.Errorf("%s is given twice in this stream; several --load make several streams", name)
		case name == "rate":
			s.gap, err = parseRate(v)
		case name == "for":
			s.length, err = positive(v)
		case name == "bursts":
			n, every, often := strings.Cut(v, "/")
			if !often {
				err = errors.New("does not say how often; write 500/10s for 500 at once each 10s")
			} else if s.burst, err = count(n); err == nil {
				s.every, err = positive(every)
			}
		case name == "tenants":
			tenants, err = count(v)
		case name == "keys":
			keys, err = count(v)
		case name == "zipf":
			if zipf, err = strconv.ParseFloat(v, 64); err != nil || zipf <= 1 {
				err = errors.New("must be a number above 1")
			}
		default:
			given[name] = v
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		seen[name] = true
	}
	if s.gap == 0 && s.burst == 0 {
		return nil, errors.New("has neither rate= nor bursts=: nothing would come in")
	}
	s.tenant, s.key = draw(random, tenants, zipf), draw(random, keys, zipf)
	if err := assume(given, c); err != nil {
		return nil, err
	}
	return s, s.begin(given, limitsOf(c))
}

// begin sets the columns, and draws the first instants.
func (s *stream) begin(given map[string]string, limits limitNames) (err error) {
	names := slices.Sorted(maps.Keys(given))
	if s.columns, err = newColumns(names, limits); err != nil {
		return err
	}
	for _, name := range names {
		s.templates = append(s.templates, given[name])
		s.numbered = s.numbered || strings.Contains(given[name], "{n}")
	}
	if s.gap > 0 {
		s.poisson = 0
		s.step()
	}
	if s.burst > 0 {
		s.bursting, s.left = 0, s.burst
	}
	return nil
}

// assume adds columns for limits without a given field: each call is under each limit.
func assume(given map[string]string, c scheduler.Config) error {
	name := given["upstream"]
	if name == "" && len(c.Upstreams) == 1 {
		name = slices.Collect(maps.Keys(c.Upstreams))[0]
	}
	u, ok := c.Upstreams[name]
	if !ok {
		return fmt.Errorf("upstream=%s is none of the configuration's: %s", name, strings.Join(slices.Sorted(maps.Keys(c.Upstreams)), ", "))
	}
	columns := &columns{index: make(map[string]int)}
	for name := range given {
		columns.index[name] = 0
	}
	none := func(sources ...string) bool { // true if none of their fields is given
		for _, source := range sources {
			if source != "" && slices.ContainsFunc(fieldsOf(source), func(f field) bool { return f.in(columns) }) {
				return false
			}
		}
		return true
	}
	for _, l := range u.Limits {
		column := "key." + l.Name
		if _, ok := given[column]; ok || !none(l.When, l.PerKey, l.Cost) {
			continue
		}
		if given[column] = OneKey; l.PerKey != "" {
			given[column] = "{key}"
		}
	}
	if _, ok := given["flow"]; !ok && u.ShareBy != "" && none(u.ShareBy) {
		given["flow"] = "{tenant}"
	}
	return nil
}

func parseRate(v string) (gap float64, err error) {
	n, unit, given := strings.Cut(v, "/")
	if _, err := strconv.ParseFloat(v, 64); err == nil && !given {
		return 0, fmt.Errorf("has no unit; write rate=%s/s, rate=%s/m or rate=%s/h", v, v, v)
	}
	per, ok := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	rate, err := strconv.ParseFloat(n, 64)
	if err != nil || !ok || rate <= 0 || rate/per.Seconds() > 1e9 {
		return 0, errors.New("must be a rate such as 100/s, 6000/m or 0.5/h")
	}
	return float64(per) / rate, nil
}

func count(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1e9 {
		return 0, fmt.Errorf("%q is not a whole number from 1 to 1000000000", v)
	}
	return n, nil
}

func positive(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a positive duration such as 60s", v)
	}
	return d, nil
}

// draw returns numbers from 1 to n, evenly or by Zipf's law.
func draw(r *rand.Rand, n int, zipf float64) func() int {
	switch {
	case n == 1:
		return func() int { return 1 }
	case zipf > 0:
		z := rand.NewZipf(r, zipf, 1, uint64(n-1))
		return func() int { return int(z.Uint64()) + 1 }
	}
	return func() int { return r.IntN(n) + 1 }
}

// at returns the instant of the next row, forever if there is none.
func (s *stream) at() time.Duration {
	if at := min(s.poisson, s.bursting); at < s.length {
		return at
	}
	return forever
}

// step draws the next random instant.
func (s *stream) step() { s.poisson += time.Duration(s.random.ExpFloat64() * s.gap) }

// give sets the next row.
func (s *stream) give(r *row) {
	s.n++
	r.offset, r.instant, r.at = s.at(), time.Time{}, s.at().String()
	if s.bursting <= s.poisson {
		if s.left--; s.left == 0 {
			s.bursting, s.left = s.bursting+s.every, s.burst
		}
	} else {
		s.step()
	}
	m := s.make(s.tenant(), s.key())
	r.columns, r.values, r.known = s.columns, m.values, &m.known
}

func (s *stream) make(tenant, key int) *made {
	at := [2]int{tenant, key}
	if m := s.rows[at]; m != nil {
		return m
	}
	fill := strings.NewReplacer("{tenant}", strconv.Itoa(tenant), "{key}", strconv.Itoa(key), "{n}", strconv.Itoa(s.n))
	m := &made{}
	for _, t := range s.templates {
		text := fill.Replace(t)
		m.values = append(m.values, value{text: text, json: jsonOf(text), null: text == ""})
	}
	if !s.numbered && len(s.rows) < maxArrivals {
		s.rows[at] = m
	}
	return m
}
