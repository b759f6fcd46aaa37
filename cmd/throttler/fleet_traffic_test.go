package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/api"
)

const (
	dataListener  = "upstreams.alipay.listen"
	adminListener = "admin"
)

// A traffic is calls of all kinds at random replicas, with what their callers were told.
type traffic struct {
	*fleet
	judge    *judge
	database url.URL // for programs that submit calls by SQL
	at       pace
	lossy    bool // the server loses commits

	stop    chan struct{}
	running sync.WaitGroup

	mu    sync.Mutex
	ids   map[string]string // of acknowledged calls, by path
	done  map[string]bool   // paths of calls whose caller has the answer of the platform
	never map[string]bool   // paths of calls that were cancelled, or told as not executed
	hooks map[string]bool   // paths of calls with a webhook
	why   map[string]string // reasons of refusals, by path
	told  map[string]int    // answers by their kind

	doubts map[string][]api.Problem // unknown outcomes that waiting callers were told, by path; empty: no answer came
}

func newTraffic(f *fleet, j *judge, database string, at pace) *traffic {
	u, err := url.Parse(database)
	if err != nil {
		f.Fatal(err)
	}
	return &traffic{
		fleet: f, judge: j, database: *u, at: at, stop: make(chan struct{}),
		ids: make(map[string]string), done: make(map[string]bool), never: make(map[string]bool), hooks: make(map[string]bool), told: make(map[string]int), why: make(map[string]string), doubts: make(map[string][]api.Problem),
	}
}

// start starts so many callers, and the decisions about unknown calls.
func (tr *traffic) start(callers int) {
	for n := range callers {
		tr.running.Go(func() { tr.calls(n) })
	}
	tr.running.Go(tr.decide)
}

// end ends the traffic.
func (tr *traffic) end() {
	close(tr.stop)
	tr.running.Wait()
}

func (tr *traffic) ended() bool {
	select {
	case <-tr.stop:
		return true
	default:
		return false
	}
}

// pause waits, at most until the traffic ends.
func (tr *traffic) pause(d time.Duration) {
	select {
	case <-tr.stop:
	case <-time.After(d):
	}
}

// calls makes one call after the other.
func (tr *traffic) calls(n int) {
	kinds := []struct {
		name string
		make func(path string)
	}{{"sync", tr.wait}, {"safe", tr.wait}, {"durable", tr.waitDurable}, {"async", tr.submit}, {"safe/async", tr.submit}, {"hook", tr.submit}, {"cancel", tr.cancel}, {"sql", tr.insert}}
	for i := 0; !tr.ended(); i++ {
		kind := kinds[rand.N(len(kinds))]
		kind.make(fmt.Sprintf("/%s/%d/%d", kind.name, n, i))
	}
}

// tell notes what a caller was told.
func (tr *traffic) tell(kind string, of map[string]bool, path string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.told[kind]++
	if of != nil {
		of[path] = true
	}
}

// target is that of a call: one of three keys.
func target(path string) string { return fmt.Sprintf("%s?key=%d", path, path[len(path)-1]%3) }

// wait makes a call whose caller waits.
func (tr *traffic) wait(path string) { tr.waits(path, http.Header{}) }

// waitDurable makes one with a key, and repeats it if its answer is lost. That a repeat was refused says nothing of the
// request before it.
func (tr *traffic) waitDurable(path string) {
	told := tr.waits(path, http.Header{"Idempotency-Key": {path}})
	for range 2 {
		if told == "done" || told == "not_executed" {
			return
		}
		if told = tr.waits(path, http.Header{"Idempotency-Key": {path}}); told == "not_executed" {
			tr.mu.Lock()
			delete(tr.never, path)
			tr.mu.Unlock()
		}
	}
}

func (tr *traffic) waits(path string, header http.Header) (told string) {
	status, answer := tr.post(dataListener, target(path), "{}", header)
	var problem api.Problem
	switch {
	case status == http.StatusOK && string(answer) == path:
		tr.tell("done", tr.done, path)
		return "done"
	case status == 0:
		tr.tell("no answer", nil, path)
		tr.doubt(path, api.Problem{})
	case json.Unmarshal(answer, &problem) == nil && problem.Outcome == "not_executed":
		tr.tell("not_executed", tr.never, path)
		tr.mu.Lock()
		tr.why[path] = fmt.Sprintf("%s: %s", problem.Reason, problem.Detail)
		tr.mu.Unlock()
	case problem.Outcome == "unknown":
		tr.tell("unknown", nil, path)
		tr.doubt(path, problem)
		if status != http.StatusGatewayTimeout || problem.Reason != "no_answer" || problem.Call == "" || !strings.Contains(problem.Detail, "may ") {
			tr.Errorf("%s is told as unknown by %d %s", path, status, answer)
		}
	default:
		tr.Errorf("%s: %d %s", path, status, answer)
	}
	return problem.Outcome
}

// doubt notes what a waiting caller was told whose call may have been executed.
func (tr *traffic) doubt(path string, p api.Problem) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.doubts[path] = append(tr.doubts[path], p)
}

// submit submits a call, once more if the answer is lost, and now and then though it is not, at whichever replica.
func (tr *traffic) submit(path string) {
	s := api.Submission{Upstream: "alipay", Method: "POST", Target: target(path)}
	if strings.HasPrefix(path, "/hook") {
		s.Callback = "shop"
	}
	tr.submits(path, s)
}

func (tr *traffic) submits(path string, s api.Submission) (id string) {
	body, _ := json.Marshal(s)
	header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {path}}
	for range 3 {
		status, answer := tr.post(adminListener, "/v1/calls", string(body), header)
		if status != http.StatusAccepted && status != http.StatusOK {
			continue
		}
		var call api.Call
		if err := json.Unmarshal(answer, &call); err != nil {
			tr.Errorf("%s: %v: %s", path, err, answer)
			return ""
		}
		id = call.ID
		tr.acknowledged(path, id)
		if rand.N(4) > 0 {
			break
		}
	}
	return id
}

func (tr *traffic) acknowledged(path, id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.told["submitted"]++
	if before := cmp.Or(tr.ids[path], id); before != id && !tr.lossy {
		tr.Errorf("%s is call %s, and was %s before", path, id, before)
	}
	tr.ids[path] = id
	if strings.HasPrefix(path, "/hook") {
		tr.hooks[path] = true
	}
}

// cancel submits a call for later, and takes it back about then.
func (tr *traffic) cancel(path string) {
	id := tr.submits(path, api.Submission{Upstream: "alipay", Method: "POST", Target: target(path), NotBefore: api.At(time.Now().Add(200*time.Millisecond + rand.N(time.Second)))})
	if id == "" {
		return
	}
	tr.pause(rand.N(time.Second))
	status, answer := tr.post(adminListener, "/v1/calls/"+id+"/cancel", `{"reason":"ordered twice"}`, http.Header{"Content-Type": {"application/json"}})
	switch {
	case status == http.StatusOK:
		tr.tell("cancelled", tr.never, path)
	case status == http.StatusNotFound && !tr.lossy:
		tr.Errorf("%s was acknowledged as %s, and cannot be cancelled: %s", path, id, answer)
	}
}

// insert submits a call by SQL, in a transaction that is committed or not.
func (tr *traffic) insert(path string) {
	ctx := tr.Context()
	u := tr.database
	u.Host = *tr.server.Load()
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		tr.pause(20 * time.Millisecond) // the server is away
		return
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return
	}
	var id string
	if err := tx.QueryRow(ctx, "SELECT throttler.submit('alipay', 'POST', $1, idempotency_key => $2)", target(path), path).Scan(&id); err != nil {
		return
	}
	if rand.N(4) == 0 {
		tx.Rollback(ctx)
		tr.tell("rolled back", tr.never, path)
	} else if tx.Commit(ctx) == nil {
		tr.acknowledged(path, id)
	}
}

// decide resolves the calls that are unknown, as the platform has them, once that is certain.
func (tr *traffic) decide() {
	for ; !tr.ended(); tr.pause(300 * time.Millisecond) {
		status, answer := tr.send(http.MethodGet, adminListener, "/v1/calls?state=unknown", "", http.Header{})
		var page struct{ Calls []api.CallSummary }
		if status != http.StatusOK || json.Unmarshal(answer, &page) != nil {
			continue
		}
		for _, call := range page.Calls {
			if call.Unknown == nil || call.Unknown.Why == "" || call.Unknown.Attempt == 0 {
				tr.Errorf("%s is unknown, and no reason is named: %+v", call.Path, call.Unknown)
				continue
			}
			if time.Since(call.Unknown.Since.Time) < tr.at.timeout+tr.at.late+2*time.Second {
				continue
			}
			r := api.Resolution{Outcome: "not_executed", Attempt: call.Unknown.Attempt, Reason: "as the platform has it"}
			if tr.judge.executed(call.Path) > 0 {
				r.Outcome = "done"
			}
			body, _ := json.Marshal(r)
			if status, _ := tr.post(adminListener, "/v1/calls/"+call.ID+"/resolve", string(body), http.Header{"Content-Type": {"application/json"}}); status == http.StatusOK {
				tr.tell("resolved", nil, "")
			}
		}
	}
}

// post posts to a listener of any replica.
func (tr *traffic) post(listener, path, body string, header http.Header) (status int, answer []byte) {
	return tr.send(http.MethodPost, listener, path, body, header)
}

// send sends a request to a listener of any replica, until one does not refuse it for another that has the calls. Status 0: it
// has no answer, and may have been taken.
func (tr *traffic) send(method, listener, path, body string, header http.Header) (status int, answer []byte) {
	for {
		for _, i := range rand.Perm(len(tr.replicas)) {
			p := tr.replicas[i].process()
			if p == nil || listening(p.log.String(), listener) == "" {
				continue
			}
			req, err := http.NewRequest(method, listening(p.log.String(), listener)+path, strings.NewReader(body))
			if err != nil {
				tr.Error(err)
				return 0, nil
			}
			req.Header = header.Clone()
			resp, err := tr.client.Do(req)
			if err != nil {
				if strings.Contains(err.Error(), "refused") {
					continue
				}
				return 0, nil
			}
			answer, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if bytes.Contains(answer, []byte(`"no_owner"`)) {
				continue
			}
			if err != nil {
				return 0, nil
			}
			return resp.StatusCode, answer
		}
		if tr.ended() {
			return 0, nil
		}
		tr.pause(10 * time.Millisecond)
	}
}

// call returns an acknowledged call when it has ended, or is unknown.
func (tr *traffic) call(path, id string) (call api.Call, ok bool) {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		status := 0
		if p := tr.waitOwner().process(); p != nil {
			if resp, err := tr.client.Get(listening(p.log.String(), adminListener) + "/v1/calls/" + id); err == nil {
				status = resp.StatusCode
				err = json.NewDecoder(resp.Body).Decode(&call)
				resp.Body.Close()
				if err == nil && status == http.StatusOK && call.State != api.Waiting && call.State != api.Sending {
					return call, true
				}
			}
		}
		if status == http.StatusNotFound && tr.lossy {
			return call, false
		}
		if time.Since(begun) > 2*time.Minute {
			tr.Errorf("LOST: %s was acknowledged as %s: status %d, %s", path, id, status, call.State)
			return call, false
		}
	}
}

// verdict compares what callers were told with what the platform has executed.
func (tr *traffic) verdict() {
	states, lost := make(map[api.State]int), 0
	for path, id := range tr.ids {
		call, ok := tr.call(path, id)
		if !ok {
			lost++
			delete(tr.hooks, path)
			continue
		}
		states[call.State]++
		switch {
		case call.State == api.Done:
			tr.done[path] = true
		case call.State == api.Cancelled:
			tr.never[path] = true
		case call.State != api.Unknown:
			tr.Errorf("%s is %s: %s", path, call.State, call.Reason)
		case call.Unknown == nil || call.Unknown.Why == "":
			tr.Errorf("%s is unknown, and no reason is named: %+v", path, call)
		}
		if call.State != api.Done {
			delete(tr.hooks, path)
		}
	}
	r := tr.judge.report(fleetWindow)
	tr.named(r)
	for last, begun := 0, time.Now(); tr.untold(r) != "" && time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
		if r = tr.judge.report(fleetWindow); len(r.Hooks) > last {
			last, begun = len(r.Hooks), time.Now()
		}
	}
	if path := tr.untold(r); path != "" {
		tr.Errorf("UNTOLD: no webhook has come of %s", path)
	}
	twice := 0
	for path, n := range r.Executed {
		if n > 1 {
			if twice++; tr.lossy {
				continue // of a call that was lost, and submitted again
			}
			tr.Errorf("TWICE: %s was executed %d times", path, n)
		}
		if tr.never[path] {
			tr.Errorf("FALSE: %s was cancelled, or told as not executed, and was executed: %s", path, tr.why[path])
		}
	}
	for path := range tr.done {
		if r.Executed[path] == 0 {
			tr.Errorf("FALSE: %s is done, and was not executed", path)
		}
	}
	if r.Most > tr.at.calls {
		tr.Errorf("OVER: %d calls in a window, at most %d", r.Most, tr.at.calls)
	}
	for key, n := range r.Keys {
		if n > tr.at.ofKey {
			tr.Errorf("OVER: key %s: %d calls in a window, at most %d", key, n, tr.at.ofKey)
		}
	}
	tr.Logf("%d arrivals, %d in a window at most, by key %v; executed twice %d; %d acknowledged, lost %d, by state %v; told %v; webhooks of %d calls",
		r.Arrivals, r.Most, r.Keys, twice, len(tr.ids), lost, states, tr.told, len(tr.hooks))
	if len(tr.done) == 0 || states[api.Done] == 0 {
		tr.Error("nothing was done")
	}
}

// named holds that each durable call that was executed, and of which a waiting caller has no answer, is found by its key, as
// done or unknown; and by the id that the owner has told, unless it told that the store may not have it. The id of a request that
// was passed on in vain is no call's.
//
// Other calls of waiting callers are not stored, by design, and no replica has them after the owner: their callers are told that
// the outcome is unknown. Then no call with that id claims another one.
func (tr *traffic) named(r report) {
	durable, others := 0, 0
	for path, told := range tr.doubts {
		if r.Executed[path] == 0 || tr.lossy {
			continue
		}
		ids := make(map[string]bool)
		for _, p := range told {
			if p.Call != "" && !strings.Contains(p.Detail, "passed on to the replica") && !strings.Contains(p.Detail, "may have been stored") {
				ids[p.Call] = true
			}
		}
		if strings.HasPrefix(path, "/durable/") {
			durable++
			tr.namedByKey(path, ids, told)
			continue
		}
		others++
		for id := range ids {
			var call api.Call
			if status := tr.read("/v1/calls/"+id, &call); status != http.StatusNotFound && call.State != api.Unknown {
				tr.Errorf("FALSE: %s was executed, and told as unknown; call %s is %d %s", path, id, status, call.State)
			}
		}
	}
	tr.Logf("executed without an answer to a caller that waited: %d durable calls, found by their keys, and %d others", durable, others)
}

// namedByKey holds that the call with the key of a path can be found, and has one of the ids that were told, if any was. Others
// with the key have ended before they were sent.
func (tr *traffic) namedByKey(path string, ids map[string]bool, told []api.Problem) {
	var found struct{ Calls []api.CallSummary }
	status := tr.read("/v1/calls?idempotency_key="+url.QueryEscape(path), &found)
	named := 0
	for _, summary := range found.Calls {
		call, _ := tr.call(path, summary.ID)
		if call.State == api.Done || call.State == api.Unknown {
			named++
		} else if slices.ContainsFunc(call.Attempts, func(a api.Attempt) bool { return a.Outcome != "not_executed" }) {
			tr.Errorf("FALSE: %s was executed, and call %s with its key is %s: %+v", path, call.ID, call.State, call.Attempts)
		}
		delete(ids, call.ID)
	}
	if status != http.StatusOK || named != 1 {
		tr.Errorf("UNNAMED: %s was executed, and a caller has no answer: %d, %+v", path, status, found.Calls)
	}
	if len(ids) > 0 {
		tr.Errorf("UNNAMED: %s was told as unknown as %v, and has calls %+v; told %+v", path, ids, found.Calls, told)
	}
}

// read reads a page of the admin API at any replica, when the fleet has an owner.
func (tr *traffic) read(path string, to any) (status int) {
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		var text []byte
		if status, text = tr.send(http.MethodGet, adminListener, path, "", http.Header{}); status == 0 || status >= 500 {
			continue
		}
		if err := json.Unmarshal(text, to); err != nil {
			tr.Errorf("%s: %v: %s", path, err, text)
		}
		break
	}
	return status
}

// untold returns the path of a finished call of which no webhook has come.
func (tr *traffic) untold(r report) string {
	told := make(map[string]bool)
	for id := range r.Hooks {
		call, _, _ := strings.Cut(id, ".")
		told[call] = true
	}
	for path := range tr.hooks {
		if !told[tr.ids[path]] {
			return path
		}
	}
	return ""
}
