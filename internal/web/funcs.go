package web

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/unicode/bidi"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/preview"
)

// funcs are the functions of templates in one language.
func (s *speech) funcs(prefix string) template.FuncMap {
	return template.FuncMap{
		"t":         s.text,
		"num":       s.number,
		"clock":     clock,
		"distance":  s.distance,
		"percent":   percent,
		"clean":     clean,
		"detail":    func(text string) string { return seen(text, maxDetail) },
		"lines":     detailLines,
		"bar":       bar,
		"spark":     spark,
		"badge":     badge,
		"asset":     func(name string) string { return prefix + staticPath + hashed[name] },
		"link":      func(path string, query ...string) (string, error) { return link(prefix+path, query...) },
		"state":     func(state api.State) string { return s.mustText("state." + string(state)) },
		"word":      s.word,
		"tag":       func() string { return s.tag },
		"numbers":   s.numbers,
		"subject":   func(c api.CallFacts) string { return s.subject(&c) },
		"window":    s.window,
		"busiest":   busiest,
		"holds":     holds,
		"person":    s.person,
		"asks":      asks,
		"reason":    s.reason,
		"pauseBy":   s.pause,
		"ended":     func(k api.Key) int { return k.Out - k.InFlight },
		"took":      func(a api.Attempt) string { return s.duration(a.EndedAt.Sub(a.SentAt.Time)) },
		"local":     func(instant string) string { return strings.TrimSuffix(instant, ":00Z") },
		"limitPath": limitPath,
		"int":       func(n *int) int { return *n },
		"dict":      dict,
		"millis":    func(m preview.Millis) string { return s.duration(m.Duration()) },
		"per":       permitsOf,
		"windowOf":  func(l api.Limit) string { return windowOf(&l) },
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// number writes a whole number with the separators of the language.
func (s *speech) number(n any) string {
	return message.NewPrinter(language.MustParse(s.tag)).Sprint(n)
}

// clock writes an instant for the browser, which shows it in its own time zone; without
// scripts it stays in UTC, and says so.
func clock(at api.Instant, now time.Time) template.HTML {
	if at.IsZero() {
		return "–"
	}
	utc := at.UTC()
	text := utc.Format("15:04:05")
	if utc.Format(time.DateOnly) != now.UTC().Format(time.DateOnly) {
		text = utc.Format("2006-01-02 15:04")
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, utc.Format(time.RFC3339Nano), utc.Format("2006-01-02 15:04:05.000 UTC"), text))
}

// distance writes how far an instant is from now, such as in 8 min or 12 s ago.
func (s *speech) distance(at api.Instant, now time.Time) string {
	switch d := at.Sub(now); {
	case at.IsZero():
		return ""
	case d >= time.Second:
		return s.mustText("distance.in", "Time", s.duration(d))
	case d <= -time.Second:
		return s.mustText("distance.ago", "Time", s.duration(-d))
	}
	return s.mustText("distance.now")
}

// duration writes a duration in its greatest unit, to the nearest, such as 8 min; 3.2 s and 1.5 ms have
// a decimal.
func (s *speech) duration(d time.Duration) string {
	unit := func(id string, n float64, decimals int) string {
		return s.mustText("duration."+id, "Amount", fmt.Sprintf("%.*f", decimals, n))
	}
	switch r := d.Round(time.Second); {
	case d < 10*time.Millisecond && d > 0:
		return unit("ms", float64(d)/1e6, 1)
	case d < time.Second:
		return unit("ms", math.Floor(float64(d)/1e6), 0)
	case d < 10*time.Second-50*time.Millisecond && d%time.Second != 0:
		return unit("s", d.Seconds(), 1)
	case r < 2*time.Minute:
		return unit("s", r.Seconds(), 0)
	case r < 2*time.Hour-30*time.Second:
		return unit("min", math.Round(r.Minutes()), 0)
	case r < 48*time.Hour-30*time.Minute:
		return unit("h", math.Round(r.Hours()), 0)
	}
	return unit("d", math.Round(d.Hours()/24), 0)
}

// word returns a word of the API, such as a reason, in the language; one that is not known as
// it is.
func (s *speech) word(kind, word string) string {
	if text, err := s.text(kind + "." + word); err == nil {
		return text
	}
	return clean(word)
}

// How much of a text from outside a page shows, in characters.
const (
	maxValue  = 120
	maxDetail = 2000 // of a problem
)

// clean returns a value from outside as a person can trust it: cut, each character that is not
// seen, or changes the order of the others, as its number, and a text that runs from right to
// left apart from the text around it.
func clean(value string) string { return seen(value, maxValue) }

// seen is clean with a number of characters of its own.
func seen(value string, most int) string {
	var b strings.Builder
	n, marks, leftwards := 0, 0, false
	for _, r := range value {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		if unseen(r) || marks > 0 && n == 1 || marks > maxMarks {
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
			continue
		}
		p, _ := bidi.LookupRune(r)
		leftwards = leftwards || p.Class() == bidi.R || p.Class() == bidi.AL
		b.WriteRune(r)
	}
	if leftwards {
		return "\u2068" + b.String() + "\u2069"
	}
	return b.String()
}

// detailLines is seen of the detail of a problem, whose line feeds stay: a fault of a file shows its place.
func detailLines(text string) string {
	all, left := strings.Split(strings.TrimRight(text, "\n"), "\n"), maxDetail
	for i, line := range all {
		all[i] = seen(line, left)
		left -= utf8.RuneCountInString(line) + 1
		if left <= 0 && i+1 < len(all) {
			return strings.Join(all[:i+1], "\n") + "\n…"
		}
	}
	return strings.Join(all, "\n")
}

// maxMarks is how many marks one letter has in the languages of the world; more of them would
// cover the lines around it.
const maxMarks = 2

// unseen reports whether a character has no picture of its own.
func unseen(r rune) bool {
	return r == unicode.ReplacementChar || r == brailleBlank || !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// brailleBlank is a printed character without a dot.
const brailleBlank = '\u2800'

// bar draws parts of a total, one after the other, as a picture for the eye alone: the figures
// stand beside it. The parts are out of the total; the class of each is the one of its place.
// A part of nothing is there too: a page that is followed keeps its elements.
func bar(total int, parts ...int) template.HTML {
	const width = 100.0
	var b strings.Builder
	b.WriteString(`<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="free" width="100" height="10"/>`)
	x := 0.0
	for i, part := range parts {
		w := max(0, min(width*float64(part)/float64(max(total, 1)), width-x))
		fmt.Fprintf(&b, `<rect class="part%d" x="%.1f" width="%.1f" height="10"/>`, i+1, x, w)
		x += w
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// badges is how many colours the name of an environment may have.
const badges = 6

// badge returns the class of the colour of a name: always the same one.
func badge(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprint("badge", h.Sum32()%badges)
}

// mustLink is link where the pairs are those of the program.
func mustLink(path string, query ...string) string {
	path, err := link(path, query...)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return path
}

// link returns a path with a query of pairs; a pair with an empty value is left out.
func link(path string, query ...string) (string, error) {
	if len(query)%2 != 0 {
		return "", fmt.Errorf("link %s: %q are no pairs", path, query)
	}
	q := make(url.Values)
	for i := 0; i < len(query); i += 2 {
		if query[i+1] != "" {
			q.Add(query[i], query[i+1])
		}
	}
	if len(q) == 0 {
		return path, nil
	}
	return path + "?" + q.Encode(), nil
}

// dict returns the data of a template that is used by others, as pairs of a name and a value.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %v are no pairs", pairs)
	}
	d := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		d[pairs[i].(string)] = pairs[i+1]
	}
	return d, nil
}

// window writes the window of a limit, as in per 1 s.
func (s *speech) window(l api.Limit) string {
	switch l.Kind {
	case api.Sliding:
		return s.mustText("per.window", "Time", s.exactly(time.Duration(l.WindowMs)*time.Millisecond))
	case api.Calendar:
		return s.mustText("per." + l.Window)
	}
	return s.mustText("per.once")
}

// exactly writes a duration that a person has configured, with as many units as it needs.
func (s *speech) exactly(d time.Duration) string {
	for _, unit := range []struct {
		id string
		of time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}} {
		if d >= unit.of && d%unit.of == 0 {
			return s.mustText("duration."+unit.id, "Amount", s.number(int64(d/unit.of)))
		}
	}
	return s.mustText("duration.ms", "Amount", s.number(d.Milliseconds()))
}

// holds reports whether a limit holds calls back now: it is paused, or one of the keys that calls wait for has
// no permit free. Another limit holds back calls that need only its free permits.
func holds(l api.Limit) bool {
	return l.WaitingPermits > 0 && (!l.PausedUntil.IsZero() || slices.ContainsFunc(l.Keys, func(k api.Key) bool {
		return k.WaitingPermits > 0 && (k.Free <= 0 || !k.PausedUntil.IsZero())
	}))
}

// busiest returns the key of a limit that has most permits out; nil without keys.
func busiest(l api.Limit) *api.Key {
	if len(l.Keys) == 0 {
		return nil
	}
	most := slices.MaxFunc(l.Keys, func(a, b api.Key) int { return cmp.Compare(a.Out, b.Out) })
	return &most
}
