package config

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

// The messages of each faulty file are in a golden file.
func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d faulty files, error %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			_, err := Load(name, nil)
			var faults Errors
			if !errors.As(err, &faults) {
				t.Fatalf("Load gives %v, want Errors", err)
			}
			for i, err := range faults.Unwrap() {
				var fault *Fault
				if !errors.As(err, &fault) || !strings.HasPrefix(fault.Place, name) {
					t.Errorf("fault %d is %#v, want a Fault with a place", i, err)
				}
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "hunter2") {
				t.Error("a message shows a secret")
			}
			golden := strings.TrimSuffix(name, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("messages:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestAFileThatCannotBeReadIsNotAFaultyOne(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil)
	var faults Errors
	if !errors.Is(err, os.ErrNotExist) || errors.As(err, &faults) {
		t.Errorf("Load gives %v", err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The reference and the types have the same keys: Load refuses keys that the types do
// not have, and the test finds keys that the reference lacks.
func TestReferenceHasEveryKey(t *testing.T) {
	const name = "../../configs/throttler.yaml"
	if _, err := Load(name, nil); err != nil {
		t.Fatal(err)
	}
	// Lines behind #: need files or secrets; they are checked but not loaded.
	doc, at, err := parse(name, bytes.ReplaceAll(read(t, name), []byte("#: "), nil), alone)
	if err != nil {
		t.Fatal(err)
	}
	faults := newFaultList(at)
	if checkKeys(faults, "", doc, reflect.TypeFor[file]()); len(faults.faults) > 0 {
		t.Error(faults.sorted(faults.faults))
	}
	missing := everyKey("", reflect.TypeFor[file]())
	strike(missing, "", doc)
	for _, path := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s is not in the reference", path)
	}
}

// everyKey returns the paths of all keys, with * for the names in maps and [] for lists.
func everyKey(path string, t reflect.Type) map[string]bool {
	all := make(map[string]bool)
	switch {
	case keys(t) != nil:
		for _, k := range keys(t) {
			at := join(path, k.name)
			all[at] = true
			maps.Copy(all, everyKey(at, k.typ))
		}
	case t.Kind() == reflect.Map:
		return everyKey(path+".*", t.Elem())
	case t.Kind() == reflect.Slice:
		return everyKey(path+"[]", t.Elem())
	}
	return all
}

// strike removes the keys of a document from a list.
func strike(list map[string]bool, path string, doc any) {
	switch doc := doc.(type) {
	case map[string]any:
		for name, v := range doc {
			at := join(path, name)
			switch delete(list, at); {
			case path == "upstreams", strings.HasSuffix(path, ".callbacks"):
				at = path + ".*"
			}
			strike(list, at, v)
		}
	case []any:
		for _, v := range doc {
			strike(list, path+"[]", v)
		}
	}
}

// The defaults in the reference are those of the code.
func TestReferenceShowsDefaults(t *testing.T) {
	c, err := Parse(read(t, "../../configs/throttler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	least, err := Parse([]byte("upstreams: {example: {url: 'https://api.example.com'}}"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Admin, least.Admin) || c.Log != least.Log || c.Grace != least.Grace || !slices.Equal(c.Admin, []string{DefaultAdmin}) || c.Grace != DefaultGrace {
		t.Errorf("reference %v, %v, %v; defaults %v, %v, %v", c.Admin, c.Log, c.Grace, least.Admin, least.Log, least.Grace)
	}
	if c.Store != DefaultStore || least.Store != DefaultStore || c.Options.KeepCalls != store.DefaultKeepCalls || c.Options.KeepKeys != store.DefaultKeepKeys || c.Scheduler.LongWindow != scheduler.DefaultLongWindow {
		t.Errorf("reference %q, %+v, %v", c.Store, c.Options, c.Scheduler.LongWindow)
	}
	u := c.Scheduler.Upstreams["example"]
	got := []any{u.Timeout, u.Late, u.MaxWait, u.MaxAge, u.MaxWaiting, u.MaxWaitingBytes, u.MaxBody, u.Concurrency, u.Retry.Attempts, u.Retry.Min, u.Retry.Max, u.Resend}
	want := []any{upstream.DefaultTimeout, scheduler.Defaults().Late, scheduler.Defaults().MaxWait, scheduler.Defaults().MaxAge, scheduler.Defaults().MaxWaiting,
		scheduler.Defaults().MaxWaitingBytes, scheduler.Defaults().MaxBody, scheduler.Defaults().Concurrency,
		retry.DefaultAttempts, retry.DefaultMin, retry.DefaultMax, least.Scheduler.Upstreams["example"].Resend}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("reference %v\ndefaults  %v", got, want)
	}
	if l := u.Limits[1].Calendar; l.Skew != DefaultSkew || l.Zone != time.UTC {
		t.Errorf("reference has the calendar %v", l)
	}
}

func TestAlipayExample(t *testing.T) {
	c, err := Load("../../configs/alipay.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	u := c.Scheduler.Upstreams["alipay"]
	if u.URL != "https://openapi.alipay.com" || !u.Resend || u.Retry.Min != 3*time.Second || len(u.Limits) != 4 {
		t.Errorf("upstream %+v", u)
	}
	day := u.Limits[3]
	if day.Calendar == nil || day.Calendar.Unit != quota.Day || day.Calendar.Zone.String() != "Asia/Shanghai" || day.Calendar.Skew != time.Second || day.Window != 0 {
		t.Errorf("limit day is %+v", day)
	}
	if l := c.Listeners["alipay"]; l.Listen != "127.0.0.1:8081" || l.MaxBody != scheduler.Defaults().MaxBody || l.Refusal.Status != 200 {
		t.Errorf("listener %+v", l)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("warnings %q", c.Warnings)
	}
	s, err := scheduler.New(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Each form of a value is read.
func TestValues(t *testing.T) {
	c, err := Parse([]byte(`
admin: localhost:0
grace: 0s
upstreams:
  Shop:                                   # a name in another case
    listen: ":8081"
    URL: http://shop.test/v1
    max_body: 64
    max_waiting_bytes: 2 GiB
    max_waiting: "7"
    share_by: 'header("X-Tenant")'
    weights: {Acme.DE: 2, 2088: 1.5}      # a dot and a number in a key
    spacing: {burst: 3}
    retry: {attempts: 2, backoff: linear, min: 1s, max: 1m30s}
    refusal: {status: 503, headers: {X-Why: busy}, body: busy}
    limits:
      - {name: hour, calls: 5, window: hour, time_zone: America/New_York, skew: 0s, cost: 2}
      - {name: open, concurrency: 4, cost: 'len(json("items"))'}
      - {name: fast, calls: 9, window: 200ms, guard: 10ms}
`))
	if err != nil {
		t.Fatal(err)
	}
	u := c.Scheduler.Upstreams["shop"]
	got := []any{c.Admin, c.Grace, u.URL, u.MaxBody, u.MaxWaitingBytes, u.MaxWaiting, u.Weights, u.Burst, u.Retry.Attempts, u.Retry.Min, u.Retry.Max}
	want := []any{[]string{"localhost:0"}, time.Duration(0), "http://shop.test/v1", int64(64), int64(2 << 30), 7,
		map[string]float64{"acme.de": 2, "2088": 1.5}, 3, 2, time.Second, 90 * time.Second}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if d := u.Retry.Backoff(retry.Step{Min: time.Second, Max: time.Minute, N: 3, Random: 1}); d != 3*time.Second {
		t.Errorf("third delay %v, want that of the linear curve", d)
	}
	hour, open, fast := u.Limits[0], u.Limits[1], u.Limits[2]
	if hour.Calendar.Skew != 0 || hour.Calendar.Zone.String() != "America/New_York" || hour.Cost != "2" {
		t.Errorf("limit hour is %+v", hour)
	}
	if open.Concurrency != 4 || open.Cost != `len(json("items"))` || fast.Window != 200*time.Millisecond || fast.Guard != 10*time.Millisecond {
		t.Errorf("limits %+v %+v", open, fast)
	}
	refusal := c.Listeners["shop"].Refusal
	body, err := refusal.Body(Problem{})
	if string(body) != "busy" || err != nil || refusal.Status != 503 ||
		!reflect.DeepEqual(refusal.Header, http.Header{"X-Why": {"busy"}}) {
		t.Errorf("refusal %d %v %q %v", refusal.Status, refusal.Header, body, err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "throttler.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPrecedence(t *testing.T) {
	name := write(t, `
admin: 127.0.0.1:1
log: {level: warn}
upstreams:
  ali-pay: {url: "http://file.test", retry: {min: 2s}, preset: alipay}
  empty:
`)
	t.Setenv("THROTTLER_ADMIN", "127.0.0.1:2")
	t.Setenv("THROTTLER_LOG_LEVEL", "error")
	t.Setenv("THROTTLER_LOG_FORMAT", "json")
	t.Setenv("THROTTLER_GRACE", "") // counts as unset
	t.Setenv("THROTTLER_UPSTREAMS_ALI_PAY_CONCURRENCY", "3")
	t.Setenv("THROTTLER_UPSTREAMS_ALI_PAY_RESEND", "false")
	t.Setenv("THROTTLER_UPSTREAMS_ALI_PAY_RETRY_ATTEMPTS", "7")
	t.Setenv("THROTTLER_UPSTREAMS_ALI_PAY_REFUSAL_STATUS", "429")
	t.Setenv("THROTTLER_UPSTREAMS_EMPTY_URL", "http://environment.test")
	t.Setenv("THROTTLER_UPSTREAMS_EMPTY_PRESET", "alipay")
	t.Setenv("THROTTLER_UPSTREAMS_OTHER_URL", "http://unlisted.test")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--admin", "127.0.0.1:3"}); err != nil {
		t.Fatal(err)
	}
	c, err := Load(name, flags)
	if err != nil {
		t.Fatal(err)
	}
	a, e := c.Scheduler.Upstreams["ali-pay"], c.Scheduler.Upstreams["empty"]
	for _, tt := range []struct {
		name      string
		got, want any
	}{
		{"flag over environment over file", c.Admin, []string{"127.0.0.1:3"}},
		{"environment over file", c.Log.Level, "error"},
		{"environment over a default", c.Log.Format, "json"},
		{"an empty variable is none", c.Grace, DefaultGrace},
		{"a number from the environment", a.Concurrency, 3},
		{"environment over preset", a.Resend, false},
		{"environment over preset, below the file's section", a.Retry.Attempts, 7},
		{"file over preset", a.Retry.Min, 2 * time.Second},
		{"preset beside both", a.Retry.Max, time.Minute},
		{"file alone", a.URL, "http://file.test"},
		{"an upstream that the file only names", e.URL, "http://environment.test"},
		{"its preset", e.Resend, true},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	if w := c.Warnings[0].Error(); len(c.Warnings) != 2 || !strings.Contains(w, "THROTTLER_UPSTREAMS_OTHER_URL") || strings.Contains(w, "unlisted") {
		t.Errorf("warnings %q", c.Warnings)
	}
	if c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test'}}")); err != nil || !slices.Equal(c.Admin, []string{DefaultAdmin}) {
		t.Errorf("Parse reads the environment: %v, %v", c, err)
	}
}

func TestFaultsNameTheirSource(t *testing.T) {
	t.Setenv("THROTTLER_GRACE", "soon")
	t.Setenv("THROTTLER_UPSTREAMS_A_CONCURRENCY", "many")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--log-level", "loud"}); err != nil {
		t.Fatal(err)
	}
	_, err := Load(write(t, "upstreams: {a: {url: 'http://a.test'}}"), flags)
	const want = `THROTTLER_GRACE: grace: "soon" is not a duration; write it as 1s, 500ms or 1m30s
--log-level: log.level: "loud" is unknown, must be one of: debug, info, warn, error
THROTTLER_UPSTREAMS_A_CONCURRENCY: upstreams.a.concurrency: is "many", must be a whole number`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A variable can set each key that holds one value.
func TestEveryScalarHasAVariable(t *testing.T) {
	name := write(t, "upstreams: {a: {url: 'http://a.test'}}")
	var variables []string
	for path := range everyKey("", reflect.TypeFor[file]()) {
		if typ := typeAt(path); strings.Contains(path, "[]") || strings.Contains(path, ".callbacks.") || keys(typ) != nil || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			continue
		}
		path = strings.Replace(path, "*", "a", 1)
		variables = append(variables, path)
		t.Run(path, func(t *testing.T) {
			t.Setenv(variablePrefix+strings.ToUpper(strings.ReplaceAll(path, ".", "_")), "{{ (") // not a valid value of any kind
			c, err := Load(name, nil)
			if path == "store" && err == nil && c.Store == "{{ (" {
				return // any text is a file name
			}
			if freeText.MatchString(path) { // any text is valid; it has an effect, or the section has a fault
				if err == nil && len(c.Warnings) > 1 {
					t.Errorf("warnings %q", c.Warnings)
				} else if err != nil && !strings.Contains(err.Error(), path[:strings.LastIndex(path, ".")]) {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), path+": ") {
				t.Errorf("a bad value gives %v", err)
			}
		})
	}
	if len(variables) < 20 {
		t.Errorf("only %d keys were tried: %v", len(variables), variables)
	}
}

var freeText = regexp.MustCompile(`^ui\.name$|\.(signer\.|notifications\.verify\.(secret|webhook_id)$|tls\.(cert|key|client_ca|server_name)$|idempotency\.field$)`)

func typeAt(path string) reflect.Type {
	t := reflect.TypeFor[file]()
	for part := range strings.SplitSeq(strings.ReplaceAll(path, "[]", ".[]"), ".") {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if part == "*" || part == "[]" {
			t = t.Elem()
			continue
		}
		all := keys(t)
		t = all[slices.IndexFunc(all, func(k key) bool { return k.name == part })].typ
	}
	return t
}

func TestWarnings(t *testing.T) {
	c, err := Parse([]byte(`
admin: 0.0.0.0:9090
store: memory
access: {anyone: operator, sockets: [{user: "0", role: admin}]}
upstreams:
  a: {url: "http://a.test", timeout: 1m}
  bare: {url: "http://a.test", listen: ":8081"}
  bounded: {url: "http://a.test", listen: ":8082", concurrency: 2}
  signed:
    url: http://a.test
    listen: :8083
    signer: {kind: http, url: "http://127.0.0.1:1"}
    limits: [{name: app, calls: 1, window: 1s}]
  near:
    url: http://a.test
    listen: localhost:8084
    signer: {kind: http, url: "http://127.0.0.1:1"}
    limits: [{name: app, calls: 1, window: 1s}]
`))
	if err != nil {
		t.Fatal(err)
	}
	const none = ".limits: there are none, so calls are sent as they come, up to 1024 at once; give the limits of the API"
	want := []string{
		"line 2: admin: 0.0.0.0:9090 can be reached from other hosts, and tokens come in the clear; give access.tls",
		"line 3: store: memory covers one process life",
		"line 4: access.anyone: lets other hosts at 0.0.0.0:9090 act as operator without a token",
		"line 4: access.sockets: are not used: admin has no socket",
		"line 6: upstreams.a" + none,
		"line 6: upstreams.a.timeout: 1m0s is longer than grace",
		"line 7: upstreams.bare" + none,
		"line 11: upstreams.signed.listen: :8083 can be reached from other hosts, and the signer signs what they send; write 127.0.0.1:8083, or keep other hosts out",
	}
	for i := range want {
		if len(c.Warnings) != len(want) || !strings.HasPrefix(c.Warnings[i].Error(), want[i]) {
			t.Fatalf("warnings:\n%s\nwant these beginnings:\n%s", c.Warnings, strings.Join(want, "\n"))
		}
	}
}

func TestStore(t *testing.T) {
	const rest = "\nupstreams: {a: {url: 'http://a.test', concurrency: 5, durable: 'method == \"POST\"', no_body: true}}"
	t.Setenv("SOME_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
	c, err := Parse([]byte("store: calls.db\nkeep_calls: 2h\nkeep_keys: 1h\nlong_window: 10s\nseal_key: env:SOME_KEY" + rest))
	if err != nil {
		t.Fatal(err)
	}
	u := c.Scheduler.Upstreams["a"]
	if c.Store != "calls.db" || c.Options.KeepCalls != 2*time.Hour || c.Options.KeepKeys != time.Hour || len(c.Options.SealKey) != 32 ||
		c.Scheduler.LongWindow != 10*time.Second || u.Durable != `method == "POST"` || u.NoBody != "true" || len(c.Warnings) != 0 {
		t.Errorf("%+v, durable %q, no_body %q", c, u.Durable, u.NoBody)
	}
	open, kept := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "kept")
	for name, mode := range map[string]os.FileMode{open: 0o644, kept: 0o600} {
		if err := errors.Join(os.WriteFile(name, []byte(os.Getenv("SOME_KEY")), mode), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := Parse([]byte("seal_key: file:" + kept + rest)); err != nil || len(c.Options.SealKey) != 32 {
		t.Errorf("a key of a file: %v, want 32 bytes", err)
	}
	for text, want := range map[string]string{
		"seal_key: file:" + open:                    "seal_key: " + open + " has mode 0644",
		"store: ''":                                 "store: is empty",
		"keep_calls: 1h\nkeep_keys: 2h":             "keep_keys: is 2h0m0s, longer",
		"seal_key: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY": "seal_key: is no reference",
		"seal_key: env:NOT_SET":                     "seal_key: the environment variable NOT_SET is not set",
		"seal_key: file:/no/such/file":              "seal_key: open /no/such/file",
		"long_window: 0s":                           "long_window: is 0s, must be above 0",
	} {
		if _, err := Parse([]byte(text + rest)); err == nil || !strings.Contains(err.Error(), ": "+want) || strings.Contains(err.Error(), "MDEy") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// clashes agrees with the system.
func TestClashes(t *testing.T) {
	for _, hosts := range [][2]string{{"127.0.0.1", "127.0.0.1"}, {"", "127.0.0.1"}, {"0.0.0.0", "127.0.0.1"}, {"127.0.0.1", "127.0.0.2"}, {"localhost", "127.0.0.1"}} {
		first, err := net.Listen("tcp", net.JoinHostPort(hosts[0], "0"))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(first.Addr().String())
		second, err := net.Listen("tcp", net.JoinHostPort(hosts[1], port))
		if err == nil {
			second.Close()
		}
		first.Close()
		var taken []listenAddress
		faults := newFaultList(&places{})
		listen(faults, "a", net.JoinHostPort(hosts[0], port), &taken)
		_, ok := listen(faults, "b", net.JoinHostPort(hosts[1], port), &taken)
		if clash := errors.Is(err, syscall.EADDRINUSE); ok == clash {
			t.Errorf("%q and %q: taken as free %v, the system says %v", hosts[0], hosts[1], ok, err)
		}
	}
}
