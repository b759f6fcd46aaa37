package workload

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// config returns a configuration of one upstream. Every limit is 100 per second.
func config(share string, limits ...scheduler.Limit) scheduler.Config {
	for i := range limits {
		limits[i].Calls, limits[i].Window = 100, time.Second
	}
	u := unlimited
	u.ShareBy, u.Limits = share, limits
	return scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}}
}

// unlimited is an upstream without limits.
var unlimited = scheduler.Upstream{Config: upstream.Config{URL: "http://api.test"}}

// app is one limit with a key, a condition and a cost.
var app = scheduler.Limit{Name: "app", When: `method == "POST"`, PerKey: `param("app")`, Cost: `json("n") ?? 1`}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns each arrival as a line.
func read(l *Load, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var lines []string
	for {
		at, a, err := l.Next()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		line := fmt.Sprintf("%v %s %v %v flow=%s %d %v", at, a.Upstream, a.Route.Keys, a.Route.Costs, a.Route.Flow, a.Priority, a.MaxWait)
		if a.Delay > 0 {
			line += " delay=" + a.Delay.String()
		}
		lines = append(lines, line)
	}
}

func TestReadsTheFieldsOfExpressions(t *testing.T) {
	c := config(`header("X-Tenant")`, app, scheduler.Limit{Name: "all"},
		scheduler.Limit{Name: "trade", PerKey: `let b = fromJSON(param("biz")); b.out_trade_no ?? b.trade_no`},
		scheduler.Limit{Name: "deep", PerKey: `json("order.no")`})
	want := []string{
		`0s pay map[all: app:a deep:7 trade:T1] map[app:3] flow=x 0 0s`,
		`1.5s pay map[all: deep:8 trade:T2] map[] flow=y 5 30s`,
	}
	for name, text := range map[string]string{
		"load.csv": "at,method,param.app,json.n,json.order.no,param.biz,header.X-Tenant,priority,wait\n" +
			`2026-11-21T09:00:00Z,POST,a,3,7,"{""out_trade_no"":""T1""}",x,,` + "\n" +
			`2026-11-21T09:00:01.5Z,GET,a,3,8,"{""trade_no"":""T2""}",y,5,30s` + "\n",
		"load.jsonl": `{"at":"2026-11-21T17:00:00+08:00","method":"POST","query.app":"a","json.n":3,"json.order":{"no":7},"param.biz":"{\"out_trade_no\":\"T1\"}","header.X-Tenant":"x"}` + "\n\n" +
			`{"at":"2026-11-21T09:00:01.5Z","method":"GET","query.app":"a","json.n":3,"json.order":{"no":8},"param.biz":"{\"trade_no\":\"T2\"}","header.X-Tenant":"y","priority":5,"wait":"30s"}`,
	} {
		l, err := Open(write(t, name, text), c)
		if err != nil {
			t.Fatal(err)
		}
		if want := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC); !l.Begin().Equal(want) {
			t.Errorf("%s begins at %v, want %v", name, l.Begin(), want)
		}
		if got, err := read(l, nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v\ngot  %q\nwant %q", name, err, got, want)
		}
	}
}

func TestReadsTheValuesOfExpressions(t *testing.T) {
	c := config(`header("X-Tenant")`, app, scheduler.Limit{Name: "all", When: `path == "/x"`})
	got, err := read(Open(write(t, "load.csv", "\ufeffat,upstream,key.app,cost.app,key.all,flow\n0,pay,k,2,*,f\n0.25,pay,,,,f\n"), c))
	want := []string{`0s pay map[all: app:k] map[app:2] flow=f 0 0s`, `250ms pay map[] map[] flow=f 0 0s`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

// TestFlowsWithAWeight: such a flow has the name that its weight has.
func TestFlowsWithAWeight(t *testing.T) {
	c := config(`header("X-Tenant")`)
	pay := c.Upstreams["pay"]
	pay.Weights = map[string]float64{"gold": 2}
	c.Upstreams["pay"] = pay
	got, err := read(Open(write(t, "load.csv", "at,header.X-Tenant\n0,Gold\n0,Tin\n"), c))
	want := []string{`0s pay map[] map[] flow=gold 0 0s`, `0s pay map[] map[] flow=Tin 0 0s`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

// TestFaults: each has the line of the file, the fault and the remedy.
func TestFaults(t *testing.T) {
	two := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"a": unlimited, "b": unlimited}}
	c, shared := config("", app), config(`header("X-Tenant")`)
	const head, ok = "at,method,param.app,json.n\n", "1,POST,a,1\n"
	for _, f := range []struct {
		fault, name, text string
		c                 scheduler.Config
		want              string
	}{
		{"nothing", "l.csv", "", c, `l.csv:1: is empty`},
		{"only a header", "l.csv", head, c, `l.csv:1: is empty: there is no arrival`},
		{"nothing in JSONL", "l.jsonl", "\n", c, `l.jsonl:1: is empty`},
		{"a bad instant", "l.csv", head + ok + "yesterday,POST,a,1\n", c, `l.csv:3: at "yesterday" is neither an instant`},
		{"an impossible instant", "l.csv", head + "2026-02-30T00:00:00Z,POST,a,1\n", c, `l.csv:2: at "2026-02-30T00:00:00Z" is neither`},
		{"no instant", "l.jsonl", `{"method":"POST"}`, c, `l.jsonl:1: column "at" is missing`},
		{"an empty instant", "l.csv", head + ",POST,a,1\n", c, `l.csv:2: at "" is neither`},
		{"unsorted", "l.csv", head + ok + "3,POST,a,1\n2.5,POST,a,1\n", c, `l.csv:4: at is 2.5, before the arrival above it by 500ms; sort the file`},
		{"instants and seconds", "l.csv", head + "2026-11-21T09:00:00Z,POST,a,1\n2026-11-21T09:00:01Z,POST,a,1\n0,POST,a,1\n", c, `l.csv:4: at is 0, before`},
		{"an unknown column", "l.csv", "at,app\n1,a\n", c, `l.csv:1: column "app" is unknown; there are at, upstream`},
		{"a column twice", "l.csv", "at,path,path\n1,a,b\n", c, `l.csv:1: column "path" is there twice`},
		{"a short line", "l.csv", head + ok + "2,POST\n", c, `l.csv:3: has not as many fields`},
		{"a broken quote", "l.csv", head + ok + "2,\"POST,a,1\n", c, `l.csv:`},
		{"a missing field of per_key", "l.csv", "at,method,json.n\n1,POST,1\n", c, `l.csv:2: param.app is missing: limit "app" reads it (per_key: param("app")); or give key.app`},
		{"a missing field of when", "l.csv", "at,param.app,json.n\n1,a,1\n", c, `l.csv:2: method is missing: limit "app" reads it (when:`},
		{"a missing field of cost", "l.csv", "at,method,param.app\n1,POST,a\n", c, `l.csv:2: json.n is missing`},
		{"a missing field of share_by", "l.jsonl", `{"at":1}`, shared, `l.jsonl:1: header.X-Tenant is missing: share_by`},
		{"a missing field in the middle", "l.jsonl", `{"at":1,"header.X-Tenant":"a"}` + "\n" + `{"at":2,"header.x-tenant":"a"}`, shared, `l.jsonl:2: header.X-Tenant is missing`},
		{"an empty key", "l.csv", head + "1,POST,,1\n", c, `l.csv:2: limit "app": param("app") is empty`},
		{"an empty flow", "l.csv", "at,header.X-Tenant\n1,\n", shared, `l.csv:2: share_by: header("X-Tenant") is empty`},
		{"no upstream of two", "l.csv", "at\n1\n", two, `l.csv:2: upstream is missing, and the configuration has several: a, b`},
		{"a strange upstream", "l.csv", "at,upstream\n1,c\n", two, `l.csv:2: upstream "c" is not in the configuration, which has a, b`},
		{"a bad priority", "l.csv", "at,upstream,priority\n1,a,high\n", two, `l.csv:2: priority "high" is not a whole number`},
		{"a bad wait", "l.csv", "at,upstream,wait\n1,a,30\n", two, `l.csv:2: wait "30" is not a positive duration`},
		{"a key of no limit", "l.csv", "at,method,param.app,key.ap\n1,POST,a,k\n", c, `l.csv:1: column "key.ap" is of no limit; the configuration has app`},
		{"a cost of no limit", "l.jsonl", `{"at":1,"key.app":"a"}` + "\n" + `{"at":1,"key.app":"a","cost.ap":1}`, c, `l.jsonl:2: column "cost.ap" is of no limit`},
		{"a Unix time", "l.csv", head + "1763719200,POST,a,1\n", c, `l.csv:2: at 1763719200 is too much for seconds since the beginning of the load; if it is a Unix time`},
		{"a bad delay", "l.csv", "at,upstream,delay\n1,a,soon\n", two, `l.csv:2: delay "soon" is not a duration`},
		{"a delay beyond the wait", "l.csv", "at,upstream,delay,wait\n1,a,2s,1s\n", two, `l.csv:2: delay is 2s, longer than its caller waits (wait is 1s)`},
		{"a bad cost", "l.csv", "at,key.app,cost.app\n1,k,0\n", c, `l.csv:2: cost.app "0" is not a whole number above 0`},
		{"no JSON", "l.jsonl", `{"at":1,"upstream":"a"}` + "\nat=2", two, `l.jsonl:2: is not a JSON object`},
		{"an object", "l.jsonl", `{"at":1,"path":{}}`, c, `l.jsonl:1: path is an object or a list`},
		{"a long line", "l.jsonl", `{"at":1,"upstream":"` + strings.Repeat("a", maxLine) + `"}`, c, `l.jsonl:1: is longer than`},
		{"another format", "l.xml", "<a/>", c, `l.xml: a load is a .csv or a .jsonl file`},
	} {
		_, err := read(Open(write(t, f.name, f.text), f.c))
		if err == nil || !strings.Contains(err.Error(), f.want) {
			t.Errorf("%s: %v, want %s", f.fault, err, f.want)
		}
	}
	// Only the other configuration has the limit.
	other := config("", scheduler.Limit{Name: "ap"})
	if got, err := read(Open(write(t, "l.csv", "at,key.app,key.ap\n1,a,k\n"), c, other)); err != nil || len(got) != 1 {
		t.Errorf("a key of the other configuration's limit: %q, %v", got, err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no.csv"), c); !os.IsNotExist(unwrap(err)) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func unwrap(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		if _, path := err.(*os.PathError); path {
			return err
		}
		err = u.Unwrap()
	}
}

func TestGenerate(t *testing.T) {
	c := config(`header("X-Tenant")`, app, scheduler.Limit{Name: "all"}, scheduler.Limit{Name: "key", PerKey: `header("K")`})
	make := func(seed uint64) (at []time.Duration, keys map[string]int, flows map[string]int) {
		l, err := Generate([]string{"rate=100/s for=10s bursts=50/4s tenants=3 keys=20 zipf=1.5 method=POST param.app=a{key} json.n=2"}, seed, c)
		if err != nil {
			t.Fatal(err)
		}
		keys, flows = map[string]int{}, map[string]int{}
		for {
			t0, a, err := l.Next()
			if err == io.EOF {
				return at, keys, flows
			}
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, t0)
			keys[a.Route.Keys["app"]]++
			flows[a.Route.Flow]++
			if a.Route.Costs["app"] != 2 || "a"+a.Route.Keys["key"] != a.Route.Keys["app"] || a.Route.Keys["all"] != "" {
				t.Fatalf("route %+v", a.Route)
			}
		}
	}
	at, keys, flows := make(1)
	bursts := map[time.Duration]int{}
	for _, a := range at {
		bursts[a]++
	}
	if n := len(at) - 150; n < 850 || n > 1150 || bursts[0] != 50 || bursts[4*time.Second] != 50 || bursts[8*time.Second] != 50 {
		t.Errorf("%d calls beside the bursts, want about 1000; bursts %d, %d, %d of 50", n, bursts[0], bursts[4*time.Second], bursts[8*time.Second])
	}
	if !slices.IsSorted(at) || len(flows) != 3 || len(keys) < 10 || keys["a1"] < 3*keys["a5"] {
		t.Errorf("sorted %v, flows %v, keys %v", slices.IsSorted(at), flows, keys)
	}
	again, _, _ := make(1)
	other, _, _ := make(2)
	if !slices.Equal(at, again) || slices.Equal(at, other) {
		t.Error("equal seeds must give equal loads, others others")
	}
}

func TestGenerateMergesStreams(t *testing.T) {
	got, err := read(Generate([]string{"bursts=1/2s for=5s path=/{n}", "bursts=2/3s for=4s priority=7"}, 1, config("", scheduler.Limit{Name: "path", When: `path != ""`, PerKey: `path`})))
	want := []string{
		"0s pay map[path:/1] map[] flow= 0 0s", "0s pay map[path:1] map[] flow= 7 0s", "0s pay map[path:1] map[] flow= 7 0s",
		"2s pay map[path:/2] map[] flow= 0 0s", "3s pay map[path:1] map[] flow= 7 0s", "3s pay map[path:1] map[] flow= 7 0s",
		"4s pay map[path:/3] map[] flow= 0 0s",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

func TestFaultsOfSettings(t *testing.T) {
	for settings, want := range map[string]string{
		"for=1m":                        "neither rate= nor bursts=",
		"rate=fast":                     "rate=fast: must be a rate such as",
		"rate=10/d":                     "rate=10/d: must be a rate",
		"rate=0/s":                      "rate=0/s: must be",
		"rate=1/s for=-1s":              `for=-1s: "-1s" is not a positive duration`,
		"bursts=10":                     `bursts=10: does not say how often; write 500/10s`,
		"bursts=10/x":                   `bursts=10/x: "x" is not a positive duration`,
		"rate=5/s rate=6/s":             `rate=6/s: rate is given twice`,
		"rate=5/s path=a path=b":        `path=b: path is given twice`,
		"rate=5/s key.typo=a":           `column "key.typo" is of no limit; the configuration has app`,
		"rate=1/s keys=0":               `keys=0: "0" is not a whole number`,
		"rate=1/s zipf=1":               "zipf=1: must be a number above 1",
		"rate=1/s more":                 "more: is not a setting",
		"rate=1/s upstream=other":       "upstream=other is none of the configuration's: pay",
		"rate=1/s apps=3":               `column "apps" is unknown`,
		"rate=1/s method=POST json.n=1": "param.app is missing",
	} {
		if _, err := read(Generate([]string{settings}, 1, config("", app))); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), settings) {
			t.Errorf("%s: %v, want %s", settings, err, want)
		}
	}
}

// TestRecorder reads its recording back.
func TestRecorder(t *testing.T) {
	c := config(`header("X-Tenant")`, app, scheduler.Limit{Name: "all"}, scheduler.Limit{Name: "rare", When: `path == "/r"`})
	at := time.Date(2026, 11, 21, 9, 0, 0, 123456789, time.UTC)
	routes := []*scheduler.Route{
		{Keys: map[string]string{"app": "secret-key", "all": ""}, Costs: map[string]int{"app": 3}, Flow: "secret-tenant"},
		{Keys: map[string]string{"app": "secret-key", "all": "", "rare": ""}, Flow: "gold", Weighted: true},
		{Keys: map[string]string{"all": ""}, Flow: "secret-tenant"},
	}
	for _, plain := range []bool{false, true} {
		var file bytes.Buffer
		r := NewRecorder(&file, map[string][]string{"pay": {"app", "all", "rare"}}, plain)
		for i, route := range routes {
			when := at.Add(time.Duration(i) * time.Second)
			if i == 2 {
				when = at // the wall clock was put back
			}
			if err := r.Write(when, Arrival{Upstream: "pay", Route: route, Priority: 10, MaxWait: 30 * time.Second, Delay: time.Duration(i) * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(file.String(), "secret") != plain {
			t.Errorf("plain is %v: %s", plain, &file)
		}
		got, err := read(Open(write(t, "r.jsonl", file.String()), c))
		if err != nil || len(got) != 3 {
			t.Fatal(got, err)
		}
		for i, want := range []string{
			`^0s pay map\[all: app:(\S+)\] map\[app:3\] flow=(\S+) 10 30s$`,
			`^1s pay map\[all: app:(\S+) rare:\] map\[\] flow=gold 10 30s delay=1s$`,
			`^1s pay map\[all:\] map\[\] flow=(\S+) 10 30s delay=2s$`,
		} {
			if !matches(want, got[i]) {
				t.Errorf("plain is %v: read back %q, want %s", plain, got[i], want)
			}
		}
		if a, b := strings.Fields(got[0])[3], strings.Fields(got[1])[3]; strings.TrimSuffix(a, "]") != b {
			t.Errorf("equal keys are written as %s and %s", a, b)
		}
	}
}

func matches(pattern, s string) bool { return regexp.MustCompile(pattern).MatchString(s) }
