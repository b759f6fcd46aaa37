package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the answers of docs/http.md anew")

// A page is docs/http.md: a configuration, and then requests with their answers, each in a
// block of its own.
type page struct {
	text   string
	blocks [][]int // where the contents of the blocks are
}

var fence = regexp.MustCompile("(?ms)^```(?:yaml|http)\n(.*?)^```$")

func readPage(t *testing.T, file string) *page {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &page{text: string(text)}
	for _, at := range fence.FindAllStringSubmatchIndex(p.text, -1) {
		p.blocks = append(p.blocks, at[2:])
	}
	return p
}

func (p *page) block(i int) string { return p.text[p.blocks[i][0]:p.blocks[i][1]] }

// TestHTTPReference sends the requests of docs/http.md to the sidecar with the page's
// configuration, and compares the answers with the page's. Instants and waits may differ.
func TestHTTPReference(t *testing.T) {
	const file = "../../docs/http.md"
	p := readPage(t, file)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Throttler-") || name == "Prefer" {
				t.Errorf("%s was forwarded", name)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"state":"created"}`)
	}))
	defer api.Close()
	t.Setenv("SHOP_SECRET", "whsec_c2hvcHNob3BzaG9wc2hvcHNob3BzaG9w")
	sidecar := launch(t, strings.NewReplacer(
		"127.0.0.1:9090", "127.0.0.1:0", "127.0.0.1:8081", "127.0.0.1:0",
		"https://api.partner.example", api.URL, "throttler.db", t.TempDir()+"/throttler.db").Replace(p.block(0)))
	real := map[string]string{ // by the page's
		"127.0.0.1:9090": strings.TrimPrefix(sidecar.url(t, "admin"), "http://"),
		"127.0.0.1:8081": strings.TrimPrefix(sidecar.url(t, "upstreams.partner.listen"), "http://"),
	}

	var written strings.Builder
	rest := 0
	for i := 1; i+1 < len(p.blocks); i += 2 {
		want := p.block(i + 1)
		got := exchange(t, replaceAll(p.block(i), real))
		matchIDs(real, want, got)
		got = replaceAll(got, inverse(real))
		if !*update && steady(got) != steady(want) {
			t.Errorf("the answer to\n%s\nis\n%s\nand the page says\n%s", p.block(i), got, want)
		}
		written.WriteString(p.text[rest:p.blocks[i+1][0]] + got)
		rest = p.blocks[i+1][1]
	}
	if n := len(p.blocks) / 2; n < 10 || len(p.blocks)%2 == 0 {
		t.Errorf("the page has %d blocks", len(p.blocks))
	}
	if *update {
		if err := os.WriteFile(file, []byte(written.String()+p.text[rest:]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// exchange sends a request to the address in its Host field, and returns the answer as
// the page writes it: fields in order, and JSON with indents.
func exchange(t *testing.T, request string) string {
	t.Helper()
	head, body, _ := strings.Cut(request, "\n\n")
	body = strings.TrimSuffix(body, "\n")
	if body != "" {
		head += fmt.Sprintf("\nContent-Length: %d", len(body))
	}
	host := regexp.MustCompile(`(?m)^Host: (.*)$`).FindStringSubmatch(head)
	if host == nil {
		t.Fatalf("the request has no Host:\n%s", request)
	}
	conn, err := net.Dial("tcp", host[1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, strings.ReplaceAll(strings.TrimSuffix(head, "\n"), "\n", "\r\n")+"\r\n\r\n"+body)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%v, to\n%s", err, request)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %s\n", resp.Status)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if !slices.Contains(unwritten, name) {
			fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(resp.Header[name], ", "))
		}
	}
	out.WriteString("\n")
	if err := json.Indent(&out, content, "", "  "); err != nil {
		t.Fatalf("%v in the answer to\n%s", err, request)
	}
	return strings.TrimSuffix(out.String(), "\n") + "\n"
}

// unwritten are the fields that the page leaves out.
var unwritten = []string{"Date", "Content-Length", "X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Cache-Control", "Etag"}

var (
	id      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\w{3}, \d\d \w{3} \d{4} [0-9:]+ GMT`)
	seconds = regexp.MustCompile(`(Throttler-Wait: |Retry-After: |"retry_after": )\d+`)
)

// matchIDs adds the ids of a real answer by those of the page's. Ids that the page has met
// before stay.
func matchIDs(real map[string]string, want, got string) {
	ids := id.FindAllString(want, -1)
	for i, actual := range id.FindAllString(got, -1) {
		if i < len(ids) && real[ids[i]] == "" {
			real[ids[i]] = actual
		}
	}
}

// steady returns an answer without the values that differ from run to run.
func steady(answer string) string {
	return seconds.ReplaceAllString(instant.ReplaceAllString(answer, "INSTANT"), "${1}N")
}

func replaceAll(text string, by map[string]string) string {
	var pairs []string
	for from, to := range by {
		pairs = append(pairs, from, to)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func inverse(m map[string]string) map[string]string {
	out := make(map[string]string)
	for k, v := range m {
		out[v] = k
	}
	return out
}
