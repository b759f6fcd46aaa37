package web

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A planPage is the form of a preview, with its result above it.
type planPage struct {
	Form   url.Values
	Limits []planLimit // of the running configuration; one, if other N of it are asked about
	Faults *problem    // of the configuration in the form
	Result *planResult
}

// A planLimit is a limit with the permits and the window that the form has for it.
type planLimit struct {
	api.Limit
	N, Per string
}

// maxUpload is the memory of a form with a load; the listener bounds it before.
const maxUpload = 16 << 20

// Get returns the value of a field.
func (p *planPage) Get(name string) string { return p.Form.Get(name) }

// WhatIf reports whether the form is about other N of one limit.
func (p *planPage) WhatIf() bool { return p.Form.Get("limit") != "" }

// loadPlan returns the form, filled in as it was sent.
func loadPlan(v *visit) (*view, error) {
	if !slices.Contains(scopesOf(v), "configure") {
		return nil, &problem{Status: http.StatusForbidden, Title: v.lang.mustText("plan"), Detail: v.lang.mustText("plan.forbidden")}
	}
	form := v.URL.Query()
	if v.PostForm != nil {
		form = v.PostForm
	}
	for name, value := range map[string]string{"of": "running", "load": "last", "last": "10m", "rtt": "50", "spread": "0"} {
		if form.Get(name) == "" {
			form.Set(name, value)
		}
	}
	var limits api.Limits
	if err := v.get("/v1/limits", nil, &limits); err != nil {
		return nil, err
	}
	p := &planPage{Form: form}
	for _, l := range limits.Limits {
		if p.WhatIf() && (l.Upstream != form.Get("upstream") || l.Limit != form.Get("limit")) {
			continue
		}
		name := "/" + l.Upstream + "/" + l.Limit
		if p.WhatIf() {
			name = ""
		}
		p.Limits = append(p.Limits, planLimit{l, cmp.Or(form.Get("permits"+name), strconv.Itoa(l.Permits)), cmp.Or(form.Get("window"+name), windowOf(&l))})
	}
	if len(p.Limits) == 0 {
		return nil, &problem{Status: http.StatusNotFound, Title: v.lang.mustText("plan"), Detail: v.lang.mustText("limits.none")}
	}
	return &view{title: v.lang.mustText("plan"), data: p, place: "plan", still: true}, nil
}

// windowOf returns the window of a limit as a configuration has it; empty for a bound of calls in
// flight.
func windowOf(l *api.Limit) string {
	if l.Kind != api.Sliding {
		return l.Window
	}
	text := (time.Duration(l.WindowMs) * time.Millisecond).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// plan previews the load of a form, and answers with the page.
func plan(p *Pages, w http.ResponseWriter, r *http.Request) {
	v := p.visit(r)
	rows, err := upload(r)
	if err != nil {
		p.fail(w, v, v.malformed("The form cannot be read: "+err.Error()))
		return
	}
	view, err := loadPlan(v)
	if err != nil {
		p.fail(w, v, err)
		return
	}
	status, page := http.StatusOK, view.data.(*planPage)
	if err := page.run(v, rows); err != nil {
		refused := asProblem(err)
		status = refused.Status
		if refused.Reason == "bad_config" {
			page.Faults = refused
		} else {
			v.Refused = refused
		}
	}
	p.write(w, v, status, "plan", view)
}

// upload reads a form, and returns the load in the file of it.
func upload(r *http.Request) (rows string, err error) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		return "", r.ParseForm()
	}
	if err := r.ParseMultipartForm(maxUpload); err != nil {
		return "", err
	}
	file, _, err := r.FormFile("rows")
	if err == http.ErrMissingFile {
		return "", nil
	} else if err != nil {
		return "", err
	}
	defer file.Close()
	var text strings.Builder
	_, err = io.Copy(&text, file)
	return text.String(), err
}

// run asks for the preview of the form.
func (p *planPage) run(v *visit, rows string) error {
	in, err := p.request(v, rows)
	if err != nil {
		return err
	}
	var choices []choice
	if p.WhatIf() {
		if choices, err = p.choices(v.lang); err != nil {
			return err
		}
		for _, c := range choices {
			if !c.now {
				in.Variants = append(in.Variants, api.PlanVariant{Name: c.name, Changes: []api.PlanChange{c.change}})
			}
		}
	}
	result := &planResult{}
	if err := v.do(http.MethodPost, "/v1/plan", nil, in, &result.Comparison); err != nil {
		return err
	}
	title := v.lang.mustText("plan")
	if p.WhatIf() {
		title = v.lang.mustText("plan.what_if_of", "Limit", clean(p.Get("upstream"))+" / "+clean(p.Get("limit")))
	}
	if name := v.pages.ui().Name; name != "" {
		title = clean(name) + ": " + title
	}
	result.fill(v.lang, in, choices, title, v.now)
	result.YAML = p.yaml(result.changes)
	p.Result = result
	return nil
}

// request returns the request of the form, without variants.
func (p *planPage) request(v *visit, rows string) (*api.PlanRequest, error) {
	in := &api.PlanRequest{FailIf: lines(p.Get("fail_if"))}
	wrong := func(id string, value string) error {
		return &problem{Status: http.StatusBadRequest, Title: v.lang.mustText("plan"), Detail: v.lang.mustText(id, "Value", clean(value))}
	}
	switch p.Get("load") {
	case "last":
		in.Last = p.Get("last")
	case "settings":
		if in.Settings = lines(p.Get("settings")); len(in.Settings) == 0 {
			return nil, wrong("plan.no_settings", "")
		}
	default:
		if in.Rows = rows; rows == "" {
			return nil, wrong("plan.no_file", "")
		}
	}
	rtt, err := strconv.ParseFloat(p.Get("rtt"), 64)
	if err != nil {
		return nil, wrong("plan.no_number", p.Get("rtt"))
	}
	in.RTTMs = &rtt
	if in.RTTSpreadMs, err = strconv.ParseFloat(p.Get("spread"), 64); err != nil {
		return nil, wrong("plan.no_number", p.Get("spread"))
	}
	if p.WhatIf() {
		return in, nil
	}
	if p.Get("of") == "pasted" {
		if in.Config = p.Get("config"); strings.TrimSpace(in.Config) == "" {
			return nil, wrong("plan.no_config", "")
		}
		in.Alone = p.Form.Has("alone")
		return in, nil
	}
	for _, l := range p.Limits {
		n, err := strconv.Atoi(l.N)
		if err != nil {
			return nil, wrong("plan.no_number", l.N)
		}
		if c := l.changed(n); c.Permits != nil || c.Window != "" {
			in.Changes = append(in.Changes, c)
		}
	}
	return in, nil
}

// changed returns the change that gives a limit n permits, and the window of the form. Parts that
// stay are left out.
func (l *planLimit) changed(n int) api.PlanChange {
	c := api.PlanChange{Upstream: l.Upstream, Limit: l.Limit.Limit}
	if n != l.Permits {
		c.Permits = &n
	}
	if l.Per != windowOf(&l.Limit) {
		c.Window = l.Per
	}
	return c
}

// A choice is one N in a comparison of several.
type choice struct {
	name   string
	n      int
	change api.PlanChange
	now    bool // it is in force
	asked  bool // it is the one of the form, or twice the present one
}

// choices returns several N around the present one, and that of the form, the least first.
func (p *planPage) choices(lang *speech) (all []choice, err error) {
	l := &p.Limits[0]
	typed, err := strconv.Atoi(l.N)
	if err != nil {
		return nil, &problem{Status: http.StatusBadRequest, Title: lang.mustText("plan"), Detail: lang.mustText("plan.no_number", "Value", clean(l.N))}
	}
	numbers := []int{typed, l.Permits}
	for _, factor := range []float64{0.5, 0.8, 1.5, 2} {
		numbers = append(numbers, max(1, int(math.Round(factor*float64(l.Permits)))))
	}
	asked := typed
	if c := l.changed(typed); c.Permits == nil && c.Window == "" {
		asked = 2 * l.Permits
	}
	slices.Sort(numbers)
	for _, n := range slices.Compact(numbers) {
		if n == l.Permits {
			all = append(all, choice{n: n, now: true})
		}
		if c := l.changed(n); c.Permits != nil || c.Window != "" {
			all = append(all, choice{variantOf(lang, n, l), n, c, false, n == asked})
		}
	}
	return all, nil
}

// variantOf names a limit with n permits, and the window of the form.
func variantOf(s *speech, n int, l *planLimit) string {
	text := s.number(n)
	if window, err := time.ParseDuration(l.Per); err == nil {
		return text + " " + s.mustText("per.window", "Time", s.exactly(window))
	}
	if of, err := s.text("per." + l.Per); err == nil {
		return text + " " + of
	}
	if l.Per == "" {
		return text + " " + s.mustText("per.once")
	}
	return fmt.Sprintf("%s/%s", text, clean(l.Per))
}

// yaml returns the part of a configuration that has changes.
func (p *planPage) yaml(changes []api.PlanChange) string {
	if len(changes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("upstreams:\n")
	upstream, inLimits := "", false
	for _, c := range changes {
		if c.Upstream != upstream {
			upstream, inLimits = c.Upstream, false
			fmt.Fprintf(&b, "  %s:\n", upstream)
		}
		i := slices.IndexFunc(p.Limits, func(l planLimit) bool { return l.Upstream == c.Upstream && l.Limit.Limit == c.Limit })
		if p.Limits[i].Builtin {
			fmt.Fprintf(&b, "    concurrency: %d\n", *c.Permits)
			continue
		}
		if !inLimits {
			b.WriteString("    limits:\n")
		}
		inLimits = true
		fmt.Fprintf(&b, "      - name: %s\n", c.Limit)
		if key := "calls"; c.Permits != nil {
			if p.Limits[i].Kind == api.Concurrency {
				key = "concurrency"
			}
			fmt.Fprintf(&b, "        %s: %d\n", key, *c.Permits)
		}
		if c.Window != "" {
			fmt.Fprintf(&b, "        window: %s\n", c.Window)
		}
	}
	return b.String()
}

// lines returns the lines of a text that are not blank.
func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}
