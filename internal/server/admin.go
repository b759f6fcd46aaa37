package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of the admin API.
const (
	maxAdminBody = 16 << 20 // bytes; a call's own bound is its upstream's max_body
	maxLongPoll  = 60 * time.Second
	defaultPage  = 100
	maxPage      = 1000
)

// Admin serves the admin API, the metrics and the health checks.
type Admin struct {
	s     *scheduler.Scheduler
	ready func() error
	mux   *http.ServeMux
}

// NewAdmin returns the handler of the admin listener. Ready tells why the process
// should get no traffic; nil if it should.
func NewAdmin(s *scheduler.Scheduler, metrics prometheus.Gatherer, ready func() error) *Admin {
	a := &Admin{s: s, ready: ready, mux: http.NewServeMux()}
	for pattern, h := range map[string]func(*http.Request) (*reply, error){
		"POST /v1/calls":                   a.submit,
		"GET /v1/calls":                    a.list,
		"GET /v1/calls/{id}":               a.get,
		"DELETE /v1/calls/{id}":            a.cancel,
		"POST /v1/calls/{id}/retry":        a.retry,
		"POST /v1/calls/{id}/resolve":      a.resolve,
		"GET /v1/upstreams":                a.upstreams,
		"POST /v1/upstreams/{name}/pause":  a.pause,
		"POST /v1/upstreams/{name}/resume": a.resume,
		"GET /v1/limits":                   a.limits,
		"/": func(r *http.Request) (*reply, error) {
			return nil, &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("the admin API has no %s %s", r.Method, r.URL.Path)}
		},
	} {
		a.mux.HandleFunc(pattern, answer(h))
	}
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	a.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	a.mux.HandleFunc("GET /readyz", a.readyz)
	return a
}

// ServeHTTP refuses what a web page of another origin sends, also one whose name
// was made to point to the loopback address.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && loopback(local.String()) && !loopback(r.Host) {
		http.Error(w, "the admin API on the loopback address answers only to localhost", http.StatusForbidden)
		return
	}
	a.mux.ServeHTTP(w, r)
}

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// A reply is what a handler has to say.
type reply struct {
	status  int // 0: 200
	body    any
	applied string // preference
	call    *scheduler.Call
}

// answer writes a handler's reply, or its error as a problem.
func answer(h func(*http.Request) (*reply, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxAdminBody)
		re, err := h(r)
		if err != nil {
			Refusal{}.write(w, asError(err))
			return
		}
		if re.applied != "" {
			w.Header().Set("Preference-Applied", re.applied)
		}
		if re.status == http.StatusAccepted {
			accepted(w, re.call, "")
			return
		}
		writeJSON(w, http.StatusOK, re.body)
	}
}

// accepted answers that a call has been taken, and where it is.
func accepted(w http.ResponseWriter, call *scheduler.Call, base string) {
	w.Header().Set("Location", base+"/v1/calls/"+call.ID)
	tell(w.Header(), call)
	writeJSON(w, http.StatusAccepted, call)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.Encode(v)
}

// readJSON reads a body that holds one JSON object without unknown members.
func readJSON(r *http.Request, v any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows the JSON object")
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &scheduler.Error{Reason: scheduler.TooLarge, Detail: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	case err == io.EOF:
		return bad("the body is empty; send a JSON object")
	case err != nil:
		return bad("the body is not the JSON that is expected here: %v", err)
	}
	return nil
}

// submission is the body of POST /v1/calls.
type submission struct {
	Upstream       string    `json:"upstream"`
	Method         string    `json:"method"`
	Path           string    `json:"path"`
	Headers        headers   `json:"headers"`
	Body           *string   `json:"body"`
	BodyBase64     []byte    `json:"body_base64"`
	NotBefore      time.Time `json:"not_before"`
	Deadline       time.Time `json:"deadline"`
	Priority       int       `json:"priority"`
	IdempotencyKey string    `json:"idempotency_key"`
}

// headers takes a text or a list of texts for each name.
type headers http.Header

func (h *headers) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return errors.New("headers must be an object")
	}
	*h = make(headers)
	for name, v := range raw {
		var one string
		var many []string
		if json.Unmarshal(v, &one) == nil {
			many = []string{one}
		} else if json.Unmarshal(v, &many) != nil {
			return fmt.Errorf("headers: the value of %q must be a text or a list of texts", name)
		}
		for _, v := range many {
			http.Header(*h).Add(name, v)
		}
	}
	return nil
}

func (a *Admin) submit(r *http.Request) (*reply, error) {
	var s submission
	if err := readJSON(r, &s); err != nil {
		return nil, err
	}
	if s.Upstream == "" {
		return nil, bad("upstream is missing; name one of the configuration's upstreams")
	}
	if s.Body != nil && s.BodyBase64 != nil {
		return nil, bad("body and body_base64 are both there; send one of them")
	}
	body := s.BodyBase64
	if s.Body != nil {
		body = []byte(*s.Body)
	}
	call, err := a.s.Submit(r.Context(), scheduler.Request{
		Upstream: s.Upstream, Method: s.Method, Target: s.Path, Header: scheduler.EndToEnd(http.Header(s.Headers)), Body: body,
		Priority: s.Priority, NotBefore: s.NotBefore, Deadline: s.Deadline, IdempotencyKey: s.IdempotencyKey,
	})
	return &reply{status: http.StatusAccepted, call: call}, err
}

func (a *Admin) get(r *http.Request) (*reply, error) {
	id, re := r.PathValue("id"), &reply{}
	var call *scheduler.Call
	var err error
	if v := prefers(r.Header, "wait"); v != "" {
		seconds, bad := strconv.ParseUint(v, 10, 31)
		if bad == nil {
			wait := min(time.Duration(seconds)*time.Second, maxLongPoll)
			ctx, cancel := context.WithTimeout(r.Context(), wait)
			defer cancel()
			call, err = a.s.Wait(ctx, id)
			re.applied = fmt.Sprintf("wait=%d", wait/time.Second)
		}
	}
	if re.applied == "" {
		call, err = a.s.Get(id)
	}
	re.body = call
	return re, err
}

// Page is the body of GET /v1/calls.
type Page struct {
	Calls []*scheduler.Call `json:"calls"`
	Next  string            `json:"next,omitempty"` // the cursor of the next page
}

func (a *Admin) list(r *http.Request) (*reply, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query cannot be parsed")
	}
	for name := range q {
		if !slices.Contains([]string{"upstream", "state", "limit", "cursor"}, name) {
			return nil, bad("parameter %q is unknown; there are upstream, state, limit and cursor", name)
		}
	}
	f := scheduler.Filter{Upstream: q.Get("upstream"), State: scheduler.State(q.Get("state")), After: q.Get("cursor"), Max: defaultPage}
	if f.State != "" && !slices.Contains(scheduler.States, f.State) {
		return nil, bad("state %q is unknown; there are %v", f.State, scheduler.States)
	}
	if v := q.Get("limit"); v != "" {
		if f.Max, err = strconv.Atoi(v); err != nil || f.Max < 1 || f.Max > maxPage {
			return nil, bad("limit %q is not a whole number from 1 to %d", v, maxPage)
		}
	}
	f.Max++ // one more tells whether there is a next page
	calls, err := a.s.List(f)
	if err != nil {
		return nil, err
	}
	p := Page{Calls: calls}
	if len(calls) == f.Max {
		p.Calls = calls[:f.Max-1]
		p.Next = p.Calls[f.Max-2].ID
	}
	if p.Calls == nil {
		p.Calls = []*scheduler.Call{}
	}
	return &reply{body: p}, nil
}

func (a *Admin) cancel(r *http.Request) (*reply, error) {
	call, err := a.s.Cancel(r.PathValue("id"))
	return &reply{body: call}, err
}

func (a *Admin) retry(r *http.Request) (*reply, error) {
	call, err := a.s.Resolve(r.PathValue("id"), scheduler.Waiting, "sent again by request")
	return &reply{body: call}, err
}

func (a *Admin) resolve(r *http.Request) (*reply, error) {
	var body struct {
		As     scheduler.State `json:"as"`
		Reason string          `json:"reason"`
	}
	if err := readJSON(r, &body); err != nil {
		return nil, err
	}
	call, err := a.s.Resolve(r.PathValue("id"), body.As, body.Reason)
	return &reply{body: call}, err
}

func (a *Admin) upstreams(*http.Request) (*reply, error) {
	return &reply{body: a.s.Upstreams()}, nil
}

func (a *Admin) limits(*http.Request) (*reply, error) {
	return &reply{body: a.s.Limits()}, nil
}

// closing is the body of pause and resume.
type closing struct {
	Until time.Time `json:"until"`
	For   string    `json:"for"`
	Limit string    `json:"limit"`
	Key   string    `json:"key"`
}

func (a *Admin) pause(r *http.Request) (*reply, error) {
	var c closing
	if err := readJSON(r, &c); err != nil {
		return nil, err
	}
	if c.For != "" {
		d, err := time.ParseDuration(c.For)
		if err != nil || d <= 0 {
			return nil, bad("for %q is not a positive duration such as 30s or 5m", c.For)
		}
		c.Until = time.Now().Add(d)
	}
	if c.Until.IsZero() {
		return nil, bad("until and for are both missing; say how long")
	}
	return a.status(r, a.s.Pause(r.PathValue("name"), c.Limit, c.Key, c.Until))
}

func (a *Admin) resume(r *http.Request) (*reply, error) {
	var c closing
	if r.ContentLength != 0 {
		if err := readJSON(r, &c); err != nil {
			return nil, err
		}
	}
	return a.status(r, a.s.Resume(r.PathValue("name"), c.Limit, c.Key))
}

// status answers with the upstream that a request was about.
func (a *Admin) status(r *http.Request, err error) (*reply, error) {
	if err != nil {
		return nil, err
	}
	for _, u := range a.s.Upstreams() {
		if u.Name == r.PathValue("name") {
			return &reply{body: u}, nil
		}
	}
	return nil, &scheduler.Error{Reason: scheduler.Stopping, Detail: "Throttler is stopping"}
}

func (a *Admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := a.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}
