package web

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// visitAt returns a visit in a language.
func visitAt(tag string, now time.Time) *visit { return &visit{lang: speeches("")[tag], now: now} }

// TestVerdict: the overview says whether the platforms answer, and which limits of ours hold calls back.
func TestVerdict(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	up := func(name, state, cause string, done, limited int) upstreamRow {
		return upstreamRow{api.Upstream{Name: name, State: state, Cause: cause}, past{Done: done, Limited: limited}}
	}
	full := api.Limit{Upstream: "alipay", Limit: "refund", WaitingPermits: 80, Keys: []api.Key{{Key: "a", Free: 2, WaitingPermits: 0}, {Key: "b", Free: 0, WaitingPermits: 80}}}
	free := api.Limit{Upstream: "alipay", Limit: "app", WaitingPermits: 80, Keys: []api.Key{{Key: "b", Free: 7, WaitingPermits: 80}}}
	paused := full
	paused.PausedUntil = api.At(now)
	for _, tt := range []struct {
		o    overview
		want string
	}{
		{overview{}, ""},
		{overview{Upstreams: []upstreamRow{up("alipay", "up", "", 0, 0)}}, ""}, // nothing was sent, so nothing is known
		{overview{Upstreams: []upstreamRow{up("alipay", "up", "", 9, 0)}, Limits: []api.Limit{free, full, paused}}, "The platforms answer. Our limit alipay / refund holds calls back: 80 permits are waited for. "},
		{overview{Upstreams: []upstreamRow{up("alipay", "up", "", 9, 3), up("wechat", "up", "", 0, 1)}}, "The platforms answer. alipay, wechat have limited calls in the last 15 minutes. "},
		{overview{Upstreams: []upstreamRow{up("alipay", "down", "", 9, 0), up("wechat", "paused", "operator", 0, 0)}}, "alipay does not answer. "},
		{overview{Upstreams: []upstreamRow{up("alipay", "down", "", 0, 0), up("wechat", "tripped", "silent", 0, 0)}}, "alipay, wechat do not answer. "},
		{overview{Upstreams: []upstreamRow{up("alipay", "tripped", "failing", 9, 0)}}, "alipay gives too many answers that are no clear outcome. "},
		{overview{Limits: []api.Limit{full, full, full, full, full}}, strings.Repeat("Our limit alipay / refund holds calls back: 80 permits are waited for. ", 3) + "2 more limits hold calls back. "},
	} {
		got := ""
		for _, sentence := range verdict(visitAt("en", now), &tt.o) {
			got += sentence + " "
		}
		if got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestPauses: alerts and calls say by whom, since when and why a pause is.
func TestPauses(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	at := func(d time.Duration) api.Instant { return api.At(now.Add(d)) }
	key := func(name string, until time.Duration) api.Pause {
		return api.Pause{Upstream: "alipay", Limit: "refund", Key: name, By: "answer", Status: 429, Since: at(-time.Minute), Until: at(until)}
	}
	for _, tt := range []struct {
		tag    string
		pauses []api.Pause
		want   string
	}{
		{"en", nil, ""},
		{"en", []api.Pause{{Upstream: "alipay", By: "person", Who: "oncall"}}, ""}, // of the upstream: upstreamAlerts
		{"en", []api.Pause{{Upstream: "alipay", Limit: "app", By: "person", Who: "oncall", Since: at(-3 * time.Minute), Until: at(time.Hour), Reason: "too fast"}}, "alipay / app is paused by oncall 3 min ago: too fast, and goes on in 60 min. Calls that need it wait."},
		{"en", []api.Pause{key("a", time.Second)}, "alipay / refund / a is paused by an answer of the platform (status 429) 60 s ago, and goes on in 1 s. Calls that need it wait."},
		{"en", []api.Pause{key("a", time.Second), key("b", 3*time.Second)}, "2 keys of alipay / refund are paused; the last of them goes on in 3 s."},
		{"en", []api.Pause{ // two pauses of one limit are not two keys: the one that ends last counts
			{Upstream: "alipay", Limit: "app", By: "answer", Since: at(-time.Minute), Until: at(time.Second)},
			{Upstream: "alipay", Limit: "app", By: "person", Who: "jo", Since: at(-time.Minute), Until: at(time.Hour)},
		}, "alipay / app is paused by jo 60 s ago, and goes on in 60 min. Calls that need it wait."},
		{"zh-Hans", []api.Pause{key("a", time.Second)}, "alipay / refund / a 已暂停（平台应答（状态码 429），60 秒前），1 秒后恢复。需要它的调用在等待。"},
	} {
		got := ""
		for _, a := range pauseAlerts(visitAt(tt.tag, now), tt.pauses) {
			got += a.Text
		}
		if got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	local := api.Pause{Upstream: "wechat", By: "person", Who: "loopback", Since: at(-time.Minute), Reason: "maintenance"}
	waits := &api.WaitingFor{Limit: api.ConcurrencyLimit, Paused: true, Until: at(time.Minute), Pause: "by loopback, since 2026"}
	if got := visitAt("en", now).lang.why(waits, &local, now); got != "The upstream is paused by local access 60 s ago: maintenance, and goes on in 60 s." {
		t.Error(got)
	}
	app := api.Pause{Upstream: "wechat", Limit: "app", By: "person", Who: "jo", Since: at(-time.Minute)}
	if got := visitAt("en", now).lang.why(&api.WaitingFor{Limit: "app", Key: "a", Paused: true, Until: at(time.Minute)}, &app, now); got != "Limit app is paused by jo 60 s ago, and goes on in 60 s." {
		t.Error(got)
	}
	if got := visitAt("en", now).lang.why(waits, nil, now); got != "The upstream is paused by loopback, since 2026, and goes on in 60 s." {
		t.Error(got)
	}
}

// TestSlowed: an alert, and the reason why a call waits, say how calls are slowed down and why.
func TestSlowed(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	slowed := api.Slowed{Limit: "app", Key: "<2021>", Since: api.At(now.Add(-time.Minute)), CallsPerSecond: 12.25, FullPerSecond: 100, Limited: 99, Passed: 1, Within: "100 per 1s"}
	for _, tt := range []struct{ tag, alert, why string }{
		{"en", "bank / app / <2021> was slowed down 60 s ago, and goes at 12.2 calls/s: 99 of 100 answers limited calls within 100 per 1s. Another program uses the quota, a limit is too high, or the platform counts otherwise, bursts for instance: then write fewer calls per shorter window.",
			"All permits of limit app are out; the next one is back in 1 s. It was slowed down 60 s ago, as 99 of 100 answers limited calls, and goes at 12.2 calls/s."},
		{"zh-Hans", "bank / app / <2021> 自60 秒前起降速至每秒 12.2 次调用：100 个应答中有 99 个限流（配置为 100 per 1s）。可能有其他程序占用配额、限额设得过高，或平台按别的方式计数（例如限制突发）：若是后者，请配置更短窗口内更少的调用。", ""},
	} {
		v := visitAt(tt.tag, now)
		all := upstreamAlerts(v, []api.Upstream{{Name: "bank", State: "up", Slowed: []api.Slowed{slowed}}}, nil)
		if len(all) != 1 || all[0].Text != tt.alert || all[0].Link != limitPath("bank", "app") {
			t.Errorf("%+v, want %q", all, tt.alert)
		}
		why := v.lang.why(&api.WaitingFor{Limit: "app", Until: api.At(now.Add(time.Second)), Slowed: &slowed}, nil, now)
		if tt.why != "" && why != tt.why {
			t.Errorf("%q, want %q", why, tt.why)
		}
	}
}

// TestAlertTellsWhatExpires: only where no deadline comes first is none of the waiting calls said to be lost.
func TestAlertTellsWhatExpires(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		tag    string
		expire bool
		want   string
	}{
		{"en", false, "One call waits; it is not lost."},
		{"en", true, "One call waits. If its deadline comes first, it ends as expired and is not sent."},
		{"zh-Hans", false, "1 个调用在等待。没有丢失。"},
		{"zh-Hans", true, "1 个调用在等待。截止时间先到的将过期，不会发出。"},
	} {
		all := upstreamAlerts(visitAt(tt.tag, now), []api.Upstream{{Name: "bank", State: "paused", Cause: "answer", PausedUntil: api.At(now.Add(time.Hour)), Waiting: 1, MayExpire: tt.expire}}, nil)
		if len(all) != 1 || !strings.HasSuffix(all[0].Text, tt.want) {
			t.Errorf("%+v, want %q", all, tt.want)
		}
	}
}

// TestReasonsExist holds that package upstream still writes the words that pages translate.
func TestReasonsExist(t *testing.T) {
	source, err := os.ReadFile("../../pkg/upstream/attempt.go")
	if err != nil {
		t.Fatal(err)
	}
	for words := range reasons {
		if !strings.Contains(string(source), `"`+words) {
			t.Errorf("package upstream does not say %q any more", words)
		}
	}
}

// TestReason: reasons of attempts are in the language as far as it knows them.
func TestReason(t *testing.T) {
	for reason, want := range map[string][2]string{
		"no answer: the connection was closed": {"no answer: the connection was closed", "无应答：连接被关闭"},
		"no answer: malformed MIME header":     {"no answer: malformed MIME header", "无应答：malformed MIME header"},
		"status 404":                           {"status 404", "status 404"},
		"limited: status == 429":               {"limited: status == 429", "limited: status == 429"},
	} {
		for i, tag := range tags {
			if got := speeches("")[tag.String()].reason(reason); got != want[i] {
				t.Errorf("%s: %s, want %s", tag, got, want[i])
			}
		}
	}
}

// TestDurations are rounded to the nearest unit: a wait of 6 min 59.7 s is none of 6 min.
func TestDurations(t *testing.T) {
	s := speeches("")["en"]
	for d, want := range map[time.Duration]string{
		0: "0 ms", 1500 * time.Microsecond: "1.5 ms", 999900 * time.Microsecond: "999 ms", 3240 * time.Millisecond: "3.2 s", 9999 * time.Millisecond: "10 s", 119 * time.Second: "119 s",
		119700 * time.Millisecond: "2 min", 179600 * time.Millisecond: "3 min", 419700 * time.Millisecond: "7 min", 2*time.Hour - time.Second: "2 h", 5 * time.Hour: "5 h", 47*time.Hour + 50*time.Minute: "2 d", 60 * time.Hour: "3 d",
	} {
		if got := s.duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestSteps: the steps of a call are in their order, and the first to come is the next.
func TestSteps(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	at := func(d time.Duration) api.Instant { return api.At(now.Add(d)) }
	c := &api.Call{CallFacts: api.CallFacts{State: api.Waiting, AcceptedAt: at(-time.Hour), ETA: at(time.Minute), Deadline: at(time.Hour)}, Attempts: []api.Attempt{{N: 1, SentAt: at(-time.Minute)}}}
	got := ""
	for _, s := range stepsOf(visitAt("en", now), c) {
		got += s.Name + " " + s.When + ", "
	}
	if got != "Accepted past, Attempt 1 past, Goes next, Deadline future, " {
		t.Error(got)
	}
}

// TestEditOf: a form sends what the person has changed, and nothing else.
func TestEditOf(t *testing.T) {
	call := &api.Call{CallFacts: api.CallFacts{Priority: 5, Deadline: api.At(time.Date(2026, 11, 22, 3, 0, 30, 0, time.UTC))}}
	v := visitAt("en", time.Now())
	for _, tt := range []struct {
		form     url.Values
		priority int
		deadline string
	}{
		{url.Values{"priority": {"5"}, "not_before": {""}, "deadline": {"2026-11-22T03:00"}}, 0, ""},
		{url.Values{"priority": {"7"}, "deadline": {"2026-11-23T04:05"}}, 7, "2026-11-23T04:05"},
	} {
		v.Request = &http.Request{PostForm: tt.form}
		edit, err := editOf(v, call)
		if err != nil || (edit.Priority != nil) != (tt.priority != 0) || (edit.Deadline != nil) != (tt.deadline != "") || edit.NotBefore != nil {
			t.Errorf("%v: %+v, %v", tt.form, edit, err)
		}
		if tt.deadline != "" && (*edit.Priority != tt.priority || minuteOf(*edit.Deadline) != tt.deadline) {
			t.Errorf("%v: %+v", tt.form, edit)
		}
	}
}

// TestHowItStands: a call that a person has recorded, one that will not go in time, and a query are not told
// as a call that the platform has executed, that will go, or that is a payment.
func TestHowItStands(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	at := func(d time.Duration) api.Instant { return api.At(now.Add(d)) }
	facts := api.CallFacts{ID: "7", Upstream: "alipay", Numbers: map[string]string{"refund": "R-1"}, State: api.Waiting, ETA: at(10 * time.Minute), Deadline: at(4 * time.Minute)}
	s := visitAt("en", now).lang
	if got := s.sentence(&facts, api.Instant{}, now); got != "Refund R-1 has no slot before its deadline in 4 min: unless that changes, it ends then and is not sent to alipay." {
		t.Error(got)
	}
	if got := visitAt("zh-Hans", now).lang.sentence(&facts, api.Instant{}, now); got != "退款 R-1 在4 分钟后的截止时间前没有时隙：若无变化，届时结束，不会发往 alipay。" {
		t.Error(got)
	}
	facts.State = api.Done
	if got := s.recorded(&api.Call{CallFacts: facts}, &api.Decision{By: "loopback", At: at(-time.Minute), Reason: "bill of 25 Nov"}, now); got != "Refund R-1 was executed by alipay: recorded 60 s ago by local access, “bill of 25 Nov”." {
		t.Error(got)
	}
	call := &api.Call{CallFacts: facts, Attempts: []api.Attempt{{N: 1}, {N: 2}}, Decisions: []api.Decision{{Attempt: 1, As: "not_executed"}}}
	if ending(call) != nil { // the second attempt was answered
		t.Error("the decision about the first attempt is told as the end")
	}
	call.Decisions = append(call.Decisions, api.Decision{Attempt: 2, As: "done"})
	if d := ending(call); d == nil || d.Attempt != 2 {
		t.Errorf("the end is %+v", d)
	}
	facts.Resolves = "6"
	if got := s.subject(&facts); got != "query 7" {
		t.Error(got)
	}
}

// TestAuditRows: a change that was refused is one row, which says so; others stay as they are.
func TestAuditRows(t *testing.T) {
	record := func(seq int64, action, call, before, after string) api.AuditRecord {
		return api.AuditRecord{Seq: seq, Action: action, Actor: "oncall", Call: call, Before: before, After: after}
	}
	rows := auditRows([]api.AuditRecord{ // the newest first
		record(6, "resolve", "c1", "unknown", "not done: it has changed"), record(5, "resolve", "c1", "unknown", "done"),
		record(4, "resolve", "c2", "unknown", "not done: too late"), record(3, "pause", "", "", "until noon"),
		record(2, "ask", "c1", "unknown", "not done: paused"),
	})
	got := ""
	for _, r := range rows {
		got += r.Action + " " + r.Call + " " + r.After + " (" + r.Refused + "), "
	}
	if got != "resolve c1 done (it has changed), resolve c2  (too late), pause  until noon (), ask c1  (paused), " {
		t.Error(got)
	}
}

// TestDid: the page says what the person has just done, and no more than that.
func TestDid(t *testing.T) {
	call := "/ui/calls/" + ownID
	for _, tt := range []struct {
		path  string
		state api.State
		want  string
	}{
		{call + "?did=resolve", api.Done, "Recorded."},
		{call + "?did=resolve", api.Unknown, "Recorded. It was sent again: attempt 2 has no clear answer either."},
		{call + "?did=cancel", api.Cancelled, "Cancelled."},
		{call + "?did=anything", api.Done, ""},
		{call, api.Done, ""},
		{"/ui/calls?did=cancel&n=3", api.Cancelled, "3 calls were cancelled."},
		{"/ui/decide?did=ask&n=1", api.Unknown, "The platform was asked about one call."},
		{"/ui/decide?did=resolve&n=1", api.Unknown, ""},
		{"/ui/decide?did=ask&n=many", api.Unknown, ""},
		{"/ui/calls?did=cancel&n=999999", api.Cancelled, ""},
	} {
		page := ask(t, newPages(t, &stub{Text: "R-1", State: tt.state}), tt.path, nil).Body.String()
		if has := strings.Contains(page, `class="did"`); has != (tt.want != "") || has && !strings.Contains(page, tt.want) {
			t.Errorf("%s, %s: no %q", tt.path, tt.state, tt.want)
		}
	}
}

// TestListenerOf: the address is one that an SDK can take, and nothing is said where it is not known.
func TestListenerOf(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:8081": "http://127.0.0.1:8081", ":8081": "http://ops.example:8081", "0.0.0.0:8081": "http://ops.example:8081", "[::]:8081": "http://ops.example:8081", "proxy:80": "http://proxy:80"} {
		v := visitAt("en", time.Now())
		v.Request = &http.Request{Host: "ops.example:9090"}
		got, known := listenerOf(v, map[string]api.Setting{"upstreams.a.listen": {Value: listen}}, "a")
		if got != want || !known {
			t.Errorf("%s: %s, %v", listen, got, known)
		}
	}
	if got, known := listenerOf(nil, map[string]api.Setting{"upstreams.a.url": {Value: "http://x"}}, "a"); got != "" || !known {
		t.Errorf("without a listener: %s, %v", got, known)
	}
	if got, known := listenerOf(nil, nil, "a"); got != "" || known {
		t.Errorf("without a configuration: %s, %v", got, known)
	}
}
