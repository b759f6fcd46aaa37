package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// A refusal of the sidecar is an error with the problem.
func Example() {
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(404)
		io.WriteString(w, `{"type":"x","title":"Not found","status":404,"detail":"call c1 is not known","reason":"not_found"}`)
	}))
	defer sidecar.Close()
	c, err := New(sidecar.URL, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.GetCallWithResponse(context.Background(), "c1", nil)
	var refused *Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Status, refused.Problem.Reason, refused)
	}
	// Output: 404 not_found call c1 is not known
}

func TestTargets(t *testing.T) {
	for target, want := range map[string]string{
		"127.0.0.1:9090":           "http://127.0.0.1:9090",
		":9090":                    "http://127.0.0.1:9090",
		"0.0.0.0:9090":             "http://127.0.0.1:9090",
		"[::]:9090":                "http://[::1]:9090",
		"localhost:1":              "http://localhost:1",
		"http://sidecar:9090/v1/x": "http://sidecar:9090",
		"https://sidecar.example":  "https://sidecar.example",
		"unix:/run/t.sock":         "http://localhost",
		"127.0.0.1":                "",
		"":                         "",
		"unix:":                    "",
		"ftp://a:1":                "",
		"http://u:p@a:1":           "",
		"a b:1":                    "",
	} {
		got, _, err := dial(target)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", target, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), DefaultTarget) {
			t.Errorf("%q: %v says no next step", target, err)
		}
	}
}

// TestSocket: requests go over a unix socket, with the token.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Authorization"))
	}))
	s.Listener.Close()
	s.Listener = socket
	s.Start()
	defer s.Close()
	c, err := New("unix:"+path, "secret")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.GetHealthWithResponse(t.Context())
	if err != nil || string(resp.Body) != "Bearer secret" {
		t.Errorf("%+v, %v", resp, err)
	}
	s.Close()
	if _, err := c.GetHealthWithResponse(t.Context()); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("nothing listens: %v", err)
	}
}
