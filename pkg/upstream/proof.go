package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// A Proof says by which answer a call is proven to be done. Where one is asked for and an answer
// does not give it, the outcome is unknown: a gateway in front of the platform may have answered,
// with a page of its own, or with half of the platform's answer.
//
// The proof is the answer in the platform's own format, in which Holds is true. A repeat of the
// call gets the true answer, so it is not parked. The breaker counts an answer in another format,
// since one page says nothing of the platform, and many in a row say that calls do not get there.
type Proof struct {
	// When is a request expression, true for the calls of which the proof is asked. Empty: all but
	// GET, HEAD and OPTIONS.
	When string
	// Format is that of a whole body: json (an object), xml, empty (there is no body), or any,
	// which is not looked at. Empty means json.
	Format string
	// Media are the media types that are taken, such as application/json, or +json for all with that
	// suffix. Empty: those of the format. An answer that names none is taken: RFC 9110, section
	// 8.3, has the content speak then, and the pages of gateways name theirs.
	Media []string
	// Holds is a condition over the answer, in the language of [Rule]; empty is true.
	Holds string
	// After is the least wait before the call is sent again; the answer may ask for more.
	After time.Duration
}

// formats are the formats of a proof, with their media types.
var formats = map[string][]string{
	"json":  {"application/json", "+json"},
	"xml":   {"application/xml", "text/xml", "+xml"},
	"empty": nil,
	"any":   nil,
}

// formatNames are the names of formats in the order of the documentation.
var formatNames = []string{"json", "xml", "empty", "any"}

type proof struct {
	Proof
	name  string // such as proof[0]
	when  *Expr  // nil for the default
	holds check
}

// proofs are compiled entries of Config.Proof.
type proofs []proof

func compileProofs(all []Proof, fault func(field string, err error)) (ps proofs) {
	for i, p := range all {
		at := fmt.Sprintf("proof[%d]", i)
		c := proof{name: at}
		var err error
		if p.When != "" {
			c.when, err = Compile(p.When, Condition)
			fault(at+".when", err)
		}
		if p.Format == "" {
			p.Format = "json"
		}
		if !slices.Contains(formatNames, p.Format) {
			fault(at+".format", fmt.Errorf("%q is unknown, must be one of: %s%s", p.Format, strings.Join(formatNames, ", "), hint.Meant(p.Format, formatNames)))
		}
		if p.Format == "empty" && len(p.Media) > 0 {
			fault(at+".media", errors.New("an empty body has no media type; leave the key out, or give another format"))
		}
		for k, m := range p.Media {
			if !validMedia(m) {
				fault(fmt.Sprintf("%s.media[%d]", at, k), fmt.Errorf("%q is no media type; write one without parameters, such as application/json, or +json for all with that suffix", m))
			}
		}
		if len(p.Media) == 0 {
			p.Media = formats[p.Format]
		}
		if p.Holds != "" {
			c.holds = check{name: at + ".holds", source: p.Holds}
			c.holds.program, err = compile(p.Holds, answerEnv{}, Condition)
			fault(at+".holds", err)
		}
		if p.After < 0 {
			fault(at+".after", fmt.Errorf("%v must not be negative", p.After))
		}
		c.Proof = p
		ps = append(ps, c)
	}
	return ps
}

// validMedia reports whether a text is a media type without parameters, or a suffix of some.
func validMedia(m string) bool {
	if suffix, ok := strings.CutPrefix(m, "+"); ok {
		return token(suffix)
	}
	kind, sub, _ := strings.Cut(m, "/")
	return token(kind) && token(sub)
}

// useBody reports whether a proof reads the body.
func (ps proofs) useBody() bool {
	return slices.ContainsFunc(ps, func(p proof) bool {
		return p.Format == "json" || p.Format == "xml" || p.holds.program != nil && names(p.holds.program, "body")
	})
}

// needWhole reports whether the proof that is asked of a call needs the whole body.
func (ps proofs) needWhole(in *Input) bool {
	for i := range ps {
		if asked, err := ps[i].asked(in); asked || err != nil {
			return err != nil || ps[i:i+1].useBody() || ps[i].Format == "empty"
		}
	}
	return false
}

// ask makes a done outcome unknown if a proof is asked of the call and the answer does not give it.
func (ps proofs) ask(res *Result, in *Input, a *answer) {
	for i := range ps {
		p := &ps[i]
		asked, err := p.asked(in)
		if err != nil {
			res.doubt(a, unproven(a, err.Error()), err)
			return
		}
		if asked {
			p.ask(res, in, a)
			return
		}
	}
}

// asked reports whether the proof is asked of a call.
func (p *proof) asked(in *Input) (bool, *Uncomputable) {
	if p.when == nil {
		return !safe(in.r.Method), nil
	}
	c := check{p.name + ".when", p.When, p.when.program}
	return c.holds(in, in.variables())
}

// ask makes a done outcome unknown if an answer does not give the proof.
func (p *proof) ask(res *Result, in *Input, a *answer) {
	lacks := p.lacks(a)
	if lacks != "" {
		res.unproven(a, lacks, p.After)
		return
	}
	if p.holds.program == nil {
		res.Proven = p.name
		return
	}
	a.strict = true
	holds, err := p.holds.holds(in, in.answer(a))
	switch {
	case err != nil:
		res.doubt(a, unproven(a, err.Error()), err)
		res.RetryAfter = max(res.RetryAfter, p.After)
	case !holds:
		res.unproven(a, fmt.Sprintf("%s.holds is not true (%s)", p.name, inQuotes(p.Holds)), p.After)
		res.Open = a.status < http.StatusInternalServerError // the platform has answered, and the breaker does not count it
	default:
		res.Proven = p.name
	}
}

// lacks says in which way an answer is not of the format; empty if it is.
func (p *proof) lacks(a *answer) string {
	if kind := otherMedia(a.header, p.Media); kind != "" {
		return fmt.Sprintf("its media type is %s, not %s", kind, list(p.Media))
	}
	switch {
	case p.Format == "any":
	case a.why != "":
		return string(a.why)
	case a.partial:
		return string(errUnseen)
	case p.Format == "empty":
		if !a.empty() {
			return "it has a body, and one that proves success has none"
		}
	case a.empty():
		return "its body is empty"
	case a.bodyKind() == isCut:
		return string(errCut)
	case p.Format == "json" && (a.bodyKind() != isJSON || !bytes.HasPrefix(a.start(), []byte("{"))):
		return "its body is no JSON object"
	case p.Format == "xml" && (a.bodyKind() != isXML || !isDocument(a.body)):
		return "its body is no whole XML document"
	}
	return ""
}

// unproven makes an outcome unknown that an answer does not prove.
func (res *Result) unproven(a *answer, lacks string, after time.Duration) {
	res.Outcome, res.Reason = Unknown, unproven(a, lacks)
	res.Ruled, res.Pause, res.Park, res.Open = false, nil, false, false
	res.RetryAfter = max(res.RetryAfter, after)
}

func unproven(a *answer, lacks string) string {
	return "status " + strconv.Itoa(a.status) + ", but the answer does not prove success: " + lacks
}

// otherMedia returns the media type of an answer that is none of some; empty if it is one of
// them, if the answer names none, or if any is taken.
func otherMedia(header http.Header, taken []string) string {
	if len(taken) == 0 {
		return ""
	}
	for _, value := range header.Values("Content-Type") {
		kind, _, err := mime.ParseMediaType(value)
		if err != nil && kind == "" { // of broken parameters the type is good
			kind, _, _ = strings.Cut(value, ";")
			kind = strings.ToLower(strings.TrimSpace(kind))
		}
		if kind == "" || slices.ContainsFunc(taken, func(m string) bool { return fits(kind, m) }) {
			continue
		}
		if !validMedia(kind) || len(kind) > 100 {
			return "none that can be read"
		}
		return kind
	}
	return ""
}

// fits reports whether a media type is one that is taken.
func fits(kind, taken string) bool {
	if strings.HasPrefix(taken, "+") {
		return strings.HasSuffix(kind, strings.ToLower(taken))
	}
	return strings.EqualFold(kind, taken)
}

// list returns media types in words.
func list(media []string) string {
	if len(media) > 1 && strings.HasPrefix(media[len(media)-1], "+") {
		media = media[:len(media)-1]
	}
	return strings.Join(media, " or ")
}
