package main

import (
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// sameCommand is the command at the foot of a page, and that of a preview.
var sameCommand = regexp.MustCompile(`<p class="same">[^<]*(?:<a [^>]*>JSON</a>)?[^<]*<code>([^<]*)</code>`)

// TestSameAsACommand holds that the command which a page shows is one of this CLI, and says the same
// as the page: a shell takes it apart, and its flags and arguments are parsed.
func TestSameAsACommand(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	platform := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	p := launch(t, oneUpstream("memory", "alipay", platform, "    limits: [{name: app, calls: 5, window: 1h}]\n"))
	submit := func(members string) string {
		status, answer := (adminCaller{p.admin, "", dialer(without(p.admin))}).ask(t, "POST", "/v1/calls", `{"upstream":"alipay","method":"POST","target":"/pay"`+members+`}`)
		id := regexp.MustCompile(`"id":"([0-9a-f-]+)"`).FindStringSubmatch(answer)
		if status != http.StatusAccepted || id == nil {
			t.Fatalf("%d %s", status, answer)
		}
		return id[1]
	}
	waits, lost := submit(`,"not_before":"2099-01-01T00:00:00Z"`), submit("")
	p.until(t, "unknown", func() bool { return p.call(lost).State == "unknown" })
	const odd = "-it's <b> \"$(x)\" `y` \\ \u202e é"
	q := func(pairs ...string) string {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return v.Encode()
	}
	settings := []string{"load", "settings", "settings", "rate=1/s for=10s", "rtt", "50", "spread", "5", "fail_if", "wait.p99 > 5s"}
	for _, row := range []struct {
		path, form, want string // the command, parsed: its name, flags by name, and arguments
	}{
		{"/ui/", "", "status"},
		{"/ui/decide", "", "calls list --needs-person=true --oldest=true --page-size=20"},
		{"/ui/calls", "", "calls list --page-size=50"},
		{"/ui/calls?" + q("q", odd), "", "find " + odd},
		{"/ui/calls?" + q("q", odd, "upstream", "alipay"), "", ""},
		{"/ui/calls?" + q("state", "waiting", "state", "unknown", "upstream", "alipay", "limit", "app", "key", odd, "flow", odd, "number", odd, "accepted_after", "2026-11-22T09:00", "order", "oldest", "needs", "person", "path_prefix", "/-p"), "",
			"calls list --accepted-after=2026-11-22T09:00:00Z --flow=" + odd + " --key=" + odd + " --limit=app --needs-person=true --number=" + odd + " --oldest=true --page-size=50 --path-prefix=/-p --state=[waiting,unknown] --upstream=alipay"},
		{"/ui/calls/" + waits, "", "calls get " + waits},
		{"/ui/calls/" + waits + "/cancel", "", "calls cancel " + waits},
		{"/ui/calls/" + waits + "/edit", "", "calls edit --priority=0 " + waits},
		{"/ui/bulk?" + q("action", "cancel", "upstream", "alipay", "flow", odd), "", "calls cancel --flow=" + odd + " --reason=REASON --upstream=alipay"},
		{"/ui/bulk?" + q("action", "cancel", "call", waits), "", "calls cancel --reason=REASON " + waits},
		{"/ui/calls/" + lost + "/resolve", "", "calls resolve --as=OUTCOME --attempt=1 --reason=REASON " + lost},
		{"/ui/calls/" + lost + "/retry", "", "calls retry --attempt=1 --reason=REASON " + lost},
		{"/ui/limits", "", "limits"},
		{"/ui/upstreams/alipay/limits/app", "", "limits --keys=true --upstream=alipay"},
		{"/ui/pause?" + q("upstream", "alipay"), "", "pause --for=10m --reason=REASON alipay"},
		{"/ui/pause?" + q("upstream", "alipay", "limit", "app", "key", odd, "for", "2h", "reason", odd), "", "pause --for=10m --key=" + odd + " --limit=app --reason=REASON alipay"},
		{"/ui/events", "", "calls watch"},
		{"/ui/events?" + q("upstream", "alipay", "call", waits), "", "calls watch --upstream=alipay " + waits},
		{"/ui/events?" + q("kind", "refused"), "", ""},
		{"/ui/refusals", "", "calls refused --page-size=50"},
		{"/ui/refusals?" + q("reason", "full", "upstream", "alipay"), "", "calls refused --page-size=50 --reason=full --upstream=alipay"},
		{"/ui/config", "", "config show --running=true"},
		{"/ui/plan", "", ""},
		{"/ui/plan", q(settings...), "plan --config=throttler.yaml --fail-if=[wait.p99 > 5s] --load=[rate=1/s for=10s] --rtt-spread=5ms --rtt=50ms"},
		{"/ui/audit", "", "audit --page-size=50"},
		{"/ui/audit?" + q("actor", odd, "action", "pause", "call", waits, "from", "2026-11-22T09:00:00Z"), "", "audit --action=pause --actor=" + odd + " --call=" + waits + " --from=2026-11-22T09:00:00Z --page-size=50"},
		{"/ui/system", "", "status"},
		{"/ui/login", "", ""},
	} {
		resp, err := http.Get(p.admin + row.path)
		if row.form != "" {
			resp, err = http.Post(p.admin+row.path, "application/x-www-form-urlencoded", strings.NewReader(row.form))
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %v", row.path, resp.StatusCode, err)
			continue
		}
		shown := ""
		if m := sameCommand.FindSubmatch(body); m != nil {
			shown = html.UnescapeString(string(m[1]))
		}
		if shown == "" {
			if row.want != "" {
				t.Errorf("%s shows no command, want %s", row.path, row.want)
			}
			continue
		}
		cmd := exec.Command(bash, "-c", "throttler() { printf '%s\\0' \"$@\"; }; "+shown)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %s: %v", row.path, shown, err)
			continue
		}
		if said := said(t, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")); said != row.want {
			t.Errorf("%s: %s\nsays %s\nwant %s", row.path, shown, said, row.want)
		}
	}
}

// said parses a command line, without running it, and returns its command with all flags and
// arguments.
func said(t *testing.T, line []string) string {
	t.Helper()
	cmd, rest, err := newRoot().Find(line)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil && !cmd.Runnable() {
		err = errSilent
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil || cmd.HasSubCommands() {
		t.Errorf("%q is no command line: %v", line, err)
		return ""
	}
	words := strings.Fields(cmd.CommandPath())[1:]
	var flags []string
	cmd.Flags().Visit(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name+"="+f.Value.String()) })
	slices.Sort(flags)
	return strings.Join(slices.Concat(words, flags, cmd.Flags().Args()), " ")
}
