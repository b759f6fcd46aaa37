package upstream

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
)

// TestLocation: the target to which an answer's Location leads. Only the upstream's own host and path are.
func TestLocation(t *testing.T) {
	const noLocation, elsewhere, outside = "has no Location", "leads to another host", "leads out of the path"
	for _, tt := range []struct {
		url, target, location string
		want, err             string
	}{
		{"https://api.example", "/orders", "/status/9", "/status/9", ""},
		{"https://api.example", "/orders", "/status/9?token=a%2Fb&x=1#top", "/status/9?token=a%2Fb&x=1", ""},
		{"https://api.example", "/orders/new", "9", "/orders/9", ""},
		{"https://api.example", "/orders/new?x=1", "?id=9", "/orders/new?id=9", ""},
		{"https://api.example", "/orders/", "../status/9", "/status/9", ""},
		{"https://api.example", "/orders", "https://api.example/status/9", "/status/9", ""},
		{"https://api.example", "/orders", "https://API.example:443/status/9", "/status/9", ""},
		{"https://api.example", "/orders", "http://api.example/status/9", "/status/9", ""}, // of a server behind TLS
		{"https://api.example", "/orders", "//api.example/status/9", "/status/9", ""},
		{"https://api.example", "/orders", "https://api.example", "/", ""},
		{"https://api.example", "/orders", "/a%2Fb", "/a%2Fb", ""},
		{"https://api.example/v1", "/orders", "/v1/status/9", "/status/9", ""},
		{"https://api.example/v1", "/orders", "status/9", "/status/9", ""},
		{"https://api.example/v1", "/orders", "https://api.example/v1/status/9", "/status/9", ""},
		{"https://api.example/v1", "/orders", "/status/9", "", outside},
		{"https://api.example/v1", "/orders", "/v10/status/9", "", outside},
		{"https://api.example/v1", "/orders", "/v1/../admin", "", outside},
		{"https://api.example/v1", "/orders", "../../admin", "", outside},
		{"https://api.example", "/orders", "", "", noLocation},
		{"https://api.example", "/orders", "https://evil.example/status/9", "", elsewhere},
		{"https://api.example", "/orders", "https://api.example.evil.example/9", "", elsewhere},
		{"https://api.example", "/orders", "https://api.example@evil.example/9", "", elsewhere},
		{"https://api.example", "/orders", "https://api.example:8443/9", "", elsewhere},
		{"https://api.example:8443", "/orders", "https://api.example/9", "", elsewhere},
		{"https://api.example", "/orders", "//evil.example/9", "", elsewhere},
		{"https://api.example", "/orders", "mailto:a@api.example", "", elsewhere},
		{"https://api.example", "/orders", "https://[::1/9", "", "is no URL"},
	} {
		u, err := New(Config{URL: tt.url})
		if err != nil {
			t.Fatal(err)
		}
		e, err := CompileQuestion("location", Text)
		if err != nil {
			t.Fatal(err)
		}
		header := make(http.Header)
		if tt.location != "" {
			header.Set("Location", tt.location)
		}
		got, err := e.Text(NewQuestion(u, &Request{Method: "POST", Target: tt.target}, NewAnswer(202, header, nil, false)))
		if got != tt.want || tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s%s and Location %q: %q, %v; want %q, %s", tt.url, tt.target, tt.location, got, err, tt.want, tt.err)
		}
		if err != nil && strings.Contains(err.Error(), "evil") {
			t.Errorf("%v quotes the answer", err)
		}
	}
}

// TestQuestionExpressions: expressions of queries read the request and the answer to it.
func TestQuestionExpressions(t *testing.T) {
	u, err := New(Config{URL: "https://api.example"})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	zw.Write([]byte(`{"id":"p9"}`))
	zw.Close()
	r := &Request{Method: "POST", Target: "/orders?shop=7", Header: http.Header{"Authorization": {"Bearer a"}}}
	accepted := NewAnswer(202, http.Header{"X-Job": {"j9"}}, []byte(`{"id":"p9","state":"pending"}`), false)
	for _, tt := range []struct {
		source string
		answer *Answer
		want   string
	}{
		{`"/jobs/" + answer_header("X-Job")`, accepted, "/jobs/j9"},
		{`"/payments/" + body("id")`, accepted, "/payments/p9"},
		{`header("Authorization")`, accepted, "Bearer a"},
		{`status == 202 ? "/jobs" : "/orders/" + query("shop")`, accepted, "/jobs"},
		{`status == 202 ? "/jobs" : "/orders/" + query("shop")`, nil, "/orders/7"},
		{`answer_header("Location") != "" ? location : "/orders/" + query("shop")`, accepted, "/orders/7"},
		{`string(body("id") ?? "none") + answer_header("X-Job")`, nil, "none"},
		{`"/payments/" + body("id")`, NewAnswer(202, http.Header{"Content-Encoding": {"gzip"}}, packed.Bytes(), false), "/payments/p9"},
	} {
		e, err := CompileQuestion(tt.source, Text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Text(NewQuestion(u, r, tt.answer)); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.source, got, err, tt.want)
		}
	}
	e, _ := CompileQuestion("location", Text)
	if _, err := e.Text(NewQuestion(u, r, nil)); err == nil || !strings.Contains(err.Error(), "there is no answer to it") {
		t.Errorf("location without an answer: %v", err)
	}
	if _, err := CompileQuestion("location + reply", Text); err == nil {
		t.Error("an unknown name is taken")
	}
	for source, want := range map[string]bool{"status == 202": true, `body("x") == 1`: true, `location == ""`: true, `answer_header("x") == ""`: true, `method == "GET"`: false, `json("status") == 1`: false} {
		if e, err := CompileQuestion(source, Condition); err != nil || e.ReadsAnswer() != want {
			t.Errorf("%s reads the answer: %v, %v", source, e.ReadsAnswer(), err)
		}
	}
	if e, err := Compile("status == 1", Condition); err == nil {
		t.Errorf("a request expression has status: %v", e)
	}
}
