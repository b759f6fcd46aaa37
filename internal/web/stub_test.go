package web

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/server"
)

// A stub answers as the admin API does: each operation with a value of its type. All fields
// of the value are filled, and its texts are Text.
type stub struct {
	Text  string
	State api.State // of calls
	Name  string    // of the caller; empty: Text
	Role  []string  // scopes of the caller; nil: all
	// Refuse is the answer to all that changes something; nil: it is done.
	Refuse *api.Problem
	// Wait is how long each answer takes.
	Wait time.Duration

	asked atomic.Int64 // answers to GET /v1/calls/{id}, but for ownID
}

// ownID is the id of the calls in answers of a stub: the sidecar has made it itself.
const ownID = "01a20144-7a3c-7000-8000-00000000fe2b"

var allScopes = []string{"read_own", "read", "bodies_own", "bodies", "submit", "operate", "configure"}

func (s *stub) handler() http.Handler {
	mux := http.NewServeMux()
	for _, op := range server.Operations() {
		if op.Out == nil {
			continue
		}
		mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(s.Wait)
			if op.ID == "getCall" && r.PathValue("id") != ownID {
				s.asked.Add(1)
			}
			if s.Refuse != nil && op.Method != http.MethodGet {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(s.Refuse.Status)
				json.NewEncoder(w).Encode(s.Refuse)
				return
			}
			out := reflect.New(reflect.TypeOf(op.Out).Elem())
			s.fill(out.Elem(), "")
			w.WriteHeader(op.Status)
			json.NewEncoder(w).Encode(out.Interface())
		})
	}
	return mux
}

// fill fills a value of a field, and all that is in it.
func (s *stub) fill(v reflect.Value, field string) {
	switch p := v.Addr().Interface().(type) {
	case *api.Instant:
		*p = api.At(time.Now().Add(time.Hour))
		return
	case *api.State:
		*p = s.State
		return
	case *api.Outcome:
		*p = "unknown"
		return
	case *api.Origin:
		*p = "data"
		return
	case *api.CallerInfo:
		*p = api.CallerInfo{Name: cmp.Or(s.Name, s.Text), Role: "operator", Via: "token", Scopes: allScopes}
		if s.Role != nil {
			p.Scopes = s.Role
		}
		return
	case *api.UnknownCall:
		defer func() { p.Next, p.RepeatIsSafe = api.NextPerson, false }()
	case *api.Limit:
		defer func() { p.Kind, p.Builtin = api.Sliding, false }()
	case *api.Call:
		defer func() { p.Unknown = unless(s.State != api.Unknown, p.Unknown) }()
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s.Text)
		if slices.Contains([]string{"ID", "Next", "EndedBy", "Resolves", "LastCall"}, field) {
			v.SetString(ownID)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(2)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		s.fill(v.Elem(), field)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			s.fill(v.Index(i), "")
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		s.fill(value, "")
		for _, key := range []string{"order", "refund"} {
			v.SetMapIndex(reflect.ValueOf(key), value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				s.fill(v.Field(i), f.Name)
			}
		}
	}
}

// unless returns nil if a condition holds.
func unless[T any](condition bool, p *T) *T {
	if condition {
		return nil
	}
	return p
}

// newPages returns the pages of a stub.
func newPages(t *testing.T, s *stub) *Pages {
	p := New(Config{API: s.handler()})
	t.Cleanup(p.Close)
	return p
}

// ask sends a request to the pages: a GET or, with a form, a POST.
func ask(t *testing.T, p *Pages, path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	if form != nil {
		r = httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// addresses returns a path of each page, by its pattern; that of an action for each action. A new
// page is tested too.
func addresses(t *testing.T) map[string][]string {
	t.Helper()
	wildcards := map[string][]string{
		"{$}": {""}, "{id}": {"01a20144-7a3c-7000-8000-00000000fe2b"}, "{name}": {"alipay"}, "{limit}": {"app"}, "{action}": actionNames,
	}
	all := make(map[string][]string)
	for _, page := range pages {
		paths := []string{page.path}
		for _, name := range slices.Sorted(maps.Keys(wildcards)) {
			var next []string
			for _, path := range paths {
				for _, value := range wildcards[name] {
					if filled := strings.ReplaceAll(path, name, value); !slices.Contains(next, filled) {
						next = append(next, filled)
					}
				}
			}
			paths = next
		}
		for i, path := range paths {
			if strings.Contains(path, "{") {
				t.Fatalf("the wildcard of %s has no value for tests: add it to addresses", page.path)
			}
			switch page.path {
			case "/ui/pause":
				paths[i] += "?upstream=alipay&limit=app"
			case "/ui/bulk":
				paths[i] += "?action=cancel&upstream=alipay&flow=shop7"
			}
		}
		all[page.path] = paths
	}
	return all
}
