package web

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A configPage has the configuration in force, and how the file differs from it.
type configPage struct {
	Groups  []settingGroup
	Changes []api.Change // that a reload would make
	File    string       // hash of the file that has them
	Faults  *problem     // of the file
	NoFile  bool         // another program has the configuration
}

// A settingGroup has the settings of one part of the configuration: of the process, or of one
// upstream.
type settingGroup struct {
	Name   string        // empty: the process
	Own    []api.Setting // that the file, a variable or a flag gives
	Others []api.Setting // defaults, and those of presets
}

// ID is that of the element that has the others.
func (g settingGroup) ID() string { return "settings-" + g.Name }

func loadConfig(v *visit) (*view, error) {
	var config api.Config
	if err := v.get("/v1/config", nil, &config); err != nil {
		return nil, err
	}
	p := &configPage{Groups: groupsOf(config.Settings)}
	var diff api.Reload
	if err := v.get("/v1/config/diff", nil, &diff); err != nil {
		p.Faults = asProblem(err)
		p.NoFile = p.Faults.Status == http.StatusNotFound
	}
	p.Changes, p.File = diff.Changes, diff.FileSHA256
	return &view{title: v.lang.mustText("config"), data: p, api: "/v1/config", shell: "throttler config show --running", place: "config", still: true}, nil
}

// groupsOf returns settings in groups, the process first.
func groupsOf(settings []api.Setting) (groups []settingGroup) {
	for _, s := range settings {
		name := ""
		if rest, ok := strings.CutPrefix(s.Path, "upstreams."); ok {
			name, s.Path, _ = strings.Cut(rest, ".")
		}
		i := slices.IndexFunc(groups, func(g settingGroup) bool { return g.Name == name })
		if i < 0 {
			groups = append(groups, settingGroup{Name: name})
			i = len(groups) - 1
		}
		if s.Source == "default" || strings.HasPrefix(s.Source, "preset ") {
			groups[i].Others = append(groups[i].Others, s)
		} else {
			groups[i].Own = append(groups[i].Own, s)
		}
	}
	slices.SortStableFunc(groups, func(a, b settingGroup) int { return cmp.Compare(a.Name, b.Name) })
	return groups
}

// reload puts the file into force that the page has shown.
func reload(v *visit) (next string, err error) {
	return "/ui/config", v.do(http.MethodPost, "/v1/config/reload", url.Values{"file": {v.PostFormValue("file")}}, nil, nil)
}

// An auditPage is one page of the audit, the newest first.
type auditPage struct {
	search
	Records []auditRow
	Older   string // path of the next page
}

// An auditRow is a change that a caller has asked for. The audit has it before it takes effect, and a record
// more if it was refused.
type auditRow struct {
	api.AuditRecord
	Refused string // why; empty: it took effect
}

// notDone begins the record of a refusal.
const notDone = "not done: "

// auditRows returns records, the newest first, as rows: a change that was refused is one.
func auditRows(records []api.AuditRecord) (rows []auditRow) {
	for i := 0; i < len(records); i++ {
		row := auditRow{AuditRecord: records[i]}
		if why, ok := strings.CutPrefix(row.After, notDone); ok {
			row.After, row.Refused = "", why
			if i+1 < len(records) && sameChange(&records[i+1], &records[i]) {
				row.Before, row.After = records[i+1].Before, records[i+1].After
				i++
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// sameChange reports whether two records are about one change.
func sameChange(a, b *api.AuditRecord) bool {
	return a.Action == b.Action && a.Actor == b.Actor && a.Call == b.Call && a.Upstream == b.Upstream && a.Limit == b.Limit && a.Key == b.Key && a.Reason == b.Reason && !strings.HasPrefix(a.After, notDone)
}

func loadAudit(v *visit) (*view, error) {
	query := asked(v, "actor", "action", "call", "from", "cursor")
	query.Set("page_size", pageSize)
	var log api.AuditLog
	if err := v.get("/v1/audit", query, &log); err != nil {
		return nil, err
	}
	p := &auditPage{search{query}, auditRows(log.Records), older("/ui/audit", query, log.Next)}
	return &view{title: v.lang.mustText("audit"), data: p, api: "/v1/audit?" + query.Encode(), shell: same("throttler audit", query, "action", "actor", "call", "cursor", "from", "page_size"), place: "audit"}, nil
}

// A systemPage is about the process.
type systemPage struct {
	Info      api.Info
	Checks    []readiness
	Listeners []shown // addresses, by what is served there
}

// A readiness is one check of whether the process should get traffic.
type readiness struct {
	Name, State string
	OK          bool
}

func loadSystem(v *visit) (*view, error) {
	info, err := v.info()
	if err != nil {
		return nil, err
	}
	p := &systemPage{Info: info, Checks: checks(v)}
	settings := settingsOf(v)
	for _, path := range slices.Sorted(maps.Keys(settings)) {
		name, upstream := strings.CutSuffix(path, ".listen")
		if s := settings[path]; (upstream || path == "admin" || path == "monitor") && s.Value != "" {
			p.Listeners = append(p.Listeners, shown{strings.TrimPrefix(name, "upstreams."), s.Value, s.Source})
		}
	}
	return &view{title: v.lang.mustText("system"), data: p, api: "/v1/info", shell: "throttler status", place: "system"}, nil
}

// checks asks whether the process should get traffic.
func checks(v *visit) (all []readiness) {
	answer := v.ask(http.MethodGet, "/readyz", url.Values{"verbose": {"true"}}, nil)
	if answer.status != http.StatusOK && answer.status != http.StatusServiceUnavailable {
		return nil
	}
	for line := range strings.Lines(answer.body.String()) {
		if name, state, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			all = append(all, readiness{name, state, state == "ok"})
		}
	}
	return all
}
