package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/web"
)

// TestReloadOfTheFileThatWasSeen: the button sends the hash of the file that the page has shown. If
// it is another one by now, the page says so, and shows that one.
func TestReloadOfTheFileThatWasSeen(t *testing.T) {
	file, asked := "aa", []string{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/info", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"caller":{"name":"ops","role":"admin","scopes":["read","configure"]}}`)
	})
	mux.HandleFunc("GET /v1/config/diff", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"dry_run":true,"file_sha256":%q,"changes":[{"path":"admin","kind":"changed","before":"a","after":"b"}]}`, file)
	})
	mux.HandleFunc("POST /v1/config/reload", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if r.URL.Query().Get("file") != file {
			w.WriteHeader(412)
			io.WriteString(w, `{"status":412,"title":"no","reason":"changed_since","detail":"the file has changed"}`)
		}
	})
	mux.HandleFunc("GET /v1/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	pages := web.New(web.Config{API: mux})
	defer pages.Close()
	hidden := func(file string) string { return `<input type="hidden" name="file" value="` + file + `">` }
	if status, page := ask(t, pages, "GET", "/ui/config", "", "en", ""); status != 200 || !strings.Contains(page, hidden("aa")) {
		t.Errorf("the page: %d %s", status, page)
	}
	file = "bb"
	const form = "application/x-www-form-urlencoded"
	status, page := ask(t, pages, "POST", "/ui/config", form, "en", url.Values{"file": {"aa"}}.Encode())
	if status != 412 || !strings.Contains(page, "the file has changed") || !strings.Contains(page, hidden("bb")) {
		t.Errorf("another file: %d %s", status, page)
	}
	if status, _ = ask(t, pages, "POST", "/ui/config", form, "en", url.Values{"file": {"bb"}}.Encode()); status != 303 {
		t.Errorf("the file of the page: %d", status)
	}
	if status, _ = ask(t, pages, "POST", "/ui/config", form, "en", ""); status != 412 {
		t.Errorf("a form without a file: %d", status)
	}
	if got := strings.Join(asked, " "); got != "file=aa file=bb file=" {
		t.Errorf("asked with %q", got)
	}
}
