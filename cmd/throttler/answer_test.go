package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// An answer is what a client gets, read to its end. Status 0 is none; the body then has the error.
type answer struct {
	status int
	header http.Header
	body   string
}

// call returns the id of the call that the answer is about.
func (a answer) call() string { return a.header.Get("Throttler-Call") }

func (a answer) outcome() string { return a.header.Get("Throttler-Outcome") }

// noRedirects is a client that shows redirects.
var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// send sends a request whose header has pairs of a name and a value, but for those without a
// value. It may run beside the test.
func send(t *testing.T, method, url, body string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return answer{body: err.Error()}
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] != "" {
			r.Header.Add(header[i], header[i+1])
		}
	}
	resp, err := noRedirects.Do(r)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// post sends a body to the admin API, and returns that of the answer.
func (p *process) post(t *testing.T, path, body string, status int) string {
	t.Helper()
	got := send(t, http.MethodPost, p.admin+path, body, "Content-Type", "application/json")
	if got.status != status {
		t.Errorf("%s: %d, want %d: %s", path, got.status, status, got.body)
	}
	return got.body
}

// accepted submits a call in the form of the admin API, and returns its id.
func (p *process) accepted(t *testing.T, call string) (id string) {
	t.Helper()
	var accepted api.Call
	if err := json.Unmarshal([]byte(p.post(t, "/v1/calls", call, http.StatusAccepted)), &accepted); err != nil {
		t.Fatal(err)
	}
	return accepted.ID
}

// pause asks for a pause, and returns it.
func (p *process) pause(t *testing.T, body string) (made api.Pause) {
	t.Helper()
	if text := p.post(t, "/v1/pauses", body, http.StatusCreated); json.Unmarshal([]byte(text), &made) != nil || made.ID == "" {
		t.Fatal(text)
	}
	return made
}

// resume ends all pauses of an upstream by a query, and returns them.
func (p *process) resume(t *testing.T, upstream, query string) (ended []api.Pause) {
	t.Helper()
	var all api.Pauses
	if text := p.body("/v1/pauses"); json.Unmarshal([]byte(text), &all) != nil {
		t.Fatal(text)
	}
	c := adminCaller{base: p.admin, client: http.DefaultClient}
	for _, pause := range all.Pauses {
		if pause.Upstream != upstream {
			continue
		}
		// 404: it has ended, or a probe has made another one of it.
		if status, text := c.ask(t, "DELETE", "/v1/pauses/"+pause.ID+query, ""); status != 200 && status != 404 {
			t.Fatalf("end of %+v: %d %s", pause, status, text)
		}
		ended = append(ended, pause)
	}
	return ended
}
