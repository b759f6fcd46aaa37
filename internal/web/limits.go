package web

import (
	"html/template"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A limitsPage has the limits of all upstreams.
type limitsPage struct {
	Upstreams []limitsOf
	Pauses    []api.Pause
}

// A shown is a setting that a page shows.
type shown struct{ Name, Value, Source string }

// limitsOf are the limits of one upstream.
type limitsOf struct {
	Upstream api.Upstream
	Limits   []api.Limit
	Listen   string // URL for SDKs; empty: the upstream has no listener
	Known    bool   // whether it has one
}

func loadLimits(v *visit) (*view, error) {
	var ups api.Upstreams
	var limits api.Limits
	var pauses api.Pauses
	for _, of := range []struct {
		path string
		out  any
	}{{"/v1/upstreams", &ups}, {"/v1/limits", &limits}, {"/v1/pauses", &pauses}} {
		if err := v.get(of.path, nil, of.out); err != nil {
			return nil, err
		}
	}
	p := &limitsPage{Pauses: pauses.Pauses}
	settings := settingsOf(v)
	for _, u := range ups.Upstreams {
		of := limitsOf{Upstream: u}
		of.Listen, of.Known = listenerOf(v, settings, u.Name)
		for _, l := range limits.Limits {
			if l.Upstream == u.Name {
				of.Limits = append(of.Limits, l)
			}
		}
		p.Upstreams = append(p.Upstreams, of)
	}
	return &view{title: v.lang.mustText("limits"), data: p, api: "/v1/limits", shell: "throttler limits", place: "limits"}, nil
}

// settingsOf returns the configuration in force by path; it is empty if the API does not tell it to this person. It
// is read once for each that comes into force.
func settingsOf(v *visit) map[string]api.Setting {
	info, err := v.info()
	if err != nil || !slices.Contains(info.Caller.Scopes, "read") {
		return nil
	}
	c := &v.pages.config
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || !c.at.Equal(info.ConfiguredAt.Time) {
		var config api.Config
		if v.get("/v1/config", nil, &config) != nil {
			return nil
		}
		c.at, c.all = info.ConfiguredAt.Time, make(map[string]api.Setting)
		for _, s := range config.Settings {
			c.all[s.Path] = s
		}
	}
	return c.all
}

// A configuration is the one in force, as pages that are followed show it.
type configuration struct {
	mu  sync.Mutex
	at  time.Time              // when it came into force
	all map[string]api.Setting // by path; never changed
}

// listenerOf returns the URL at which an upstream takes calls of SDKs. Without a host of its own it is the one by
// which the person has found this page. Known is false if the API tells no configuration of the upstream.
func listenerOf(v *visit, settings map[string]api.Setting, upstream string) (url string, known bool) {
	listen, known := settings["upstreams."+upstream+".listen"]
	if !known {
		_, known = settings["upstreams."+upstream+".url"]
		return "", known
	}
	host, port, err := net.SplitHostPort(listen.Value)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		host = v.Host
		if name, _, err := net.SplitHostPort(v.Host); err == nil {
			host = name
		}
		return "http://" + net.JoinHostPort(strings.Trim(host, "[]"), port), true
	}
	return "http://" + listen.Value, true
}

// A limitPage is one limit: whether its promise is kept, and the keys that wait for it.
type limitPage struct {
	Limit  api.Limit
	Rules  []shown // of the configuration, for which calls it is
	Pauses []api.Pause
	Keys   []api.Key // the one that was asked for, or those with most waiting
	Key    string    // that was asked for
	Flows  *api.Flows
	Charts []template.HTML // of the last hour
}

func loadLimit(v *visit) (*view, error) {
	name, limit := v.PathValue("name"), v.PathValue("limit")
	path := "/v1/upstreams/" + url.PathEscape(name) + "/limits/" + url.PathEscape(limit)
	p := &limitPage{}
	if err := v.get(path, nil, &p.Limit); err != nil {
		return nil, err
	}
	var pauses api.Pauses
	if err := v.get("/v1/pauses", nil, &pauses); err != nil {
		return nil, err
	}
	for _, pause := range pauses.Pauses {
		if pause.Upstream == name && (pause.Limit == limit || pause.Limit == "") {
			p.Pauses = append(p.Pauses, pause)
		}
	}
	p.Keys, p.Key = p.Limit.Keys, strings.TrimSpace(v.URL.Query().Get("key"))
	if p.Key != "" {
		var keys api.Keys
		if err := v.get(path+"/keys", url.Values{"key": {p.Key}}, &keys); err != nil {
			return nil, err
		}
		p.Keys = keys.Keys
	}
	settings := settingsOf(v)
	for _, key := range []string{"per_key", "when", "cost"} {
		if s := settings["upstreams."+name+".limits["+limit+"]."+key]; s.Value != "" {
			p.Rules = append(p.Rules, shown{key, s.Value, filepath.Base(s.Source)})
		}
	}
	var flows api.Flows
	if err := v.get("/v1/upstreams/"+url.PathEscape(name)+"/flows", url.Values{"page_size": {"20"}}, &flows); err != nil {
		return nil, err
	}
	p.Flows = &flows
	h, err := history(v, name, limit, historyLength)
	if err != nil {
		return nil, err
	}
	p.Charts = limitCharts(v, h, &p.Limit)
	return &view{title: clean(name) + " / " + clean(limit), data: p, api: path, shell: "throttler limits --keys" + flag("upstream", name), place: "limits"}, nil
}

// A pausePage is the form of a pause.
type pausePage struct {
	Upstream, Limit, Key string
	For, Reason          string
}

func loadPause(v *visit) (*view, error) {
	q := v.URL.Query()
	p := &pausePage{}
	if v.Method == http.MethodPost {
		q = v.PostForm // refused: as it was sent. A link writes no words of the person
		p.For, p.Reason = q.Get("for"), q.Get("reason")
	}
	p.Upstream, p.Limit, p.Key = q.Get("upstream"), q.Get("limit"), q.Get("key")
	if p.Upstream == "" {
		return nil, &redirect{"/ui/limits"}
	}
	var upstream api.Upstream
	if err := v.get("/v1/upstreams/"+url.PathEscape(p.Upstream), nil, &upstream); err != nil {
		return nil, err
	}
	if !slices.Contains(scopesOf(v), "operate") {
		return nil, notAllowed(v, "")
	}
	return &view{title: v.lang.mustText("pause.title", "Name", p.Name()), data: p, shell: pausing(p), place: "limits", form: true, still: true}, nil
}

// Name returns the upstream, limit or key that is paused.
func (p *pausePage) Name() string {
	var parts []string
	for _, part := range []string{p.Upstream, p.Limit, p.Key} {
		if part != "" {
			parts = append(parts, clean(part))
		}
	}
	return strings.Join(parts, " / ")
}

func addPause(v *visit) (next string, err error) {
	f := v.PostForm
	in := api.PauseRequest{Upstream: f.Get("upstream"), Limit: f.Get("limit"), Key: f.Get("key"), For: strings.TrimSpace(f.Get("for")), Reason: strings.TrimSpace(f.Get("reason"))}
	return "/ui/limits", v.post("/v1/pauses", in)
}

func endPause(v *visit) (next string, err error) {
	query := url.Values{}
	if reason := strings.TrimSpace(v.PostForm.Get("reason")); reason != "" {
		query.Set("reason", reason)
	}
	return "/ui/limits", v.do("DELETE", "/v1/pauses/"+url.PathEscape(v.PostForm.Get("id")), query, nil, nil)
}
