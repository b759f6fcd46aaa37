package security

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// most is the greatest resident memory of a sidecar with the defaults under attack, in MiB.
const most = 256

// A crowd is many clients that do the same at one listener, and then nothing more.
type crowd struct {
	name    string
	clients int
	admin   bool // they are at the admin API
	raw     string
	// then, if not nil, is done to each connection after the bytes.
	then func(c *net.TCPConn)
}

const megabyte = "Content-Length: 1048576\r\n"

func half(c *net.TCPConn) { c.CloseWrite() }
func cut(c *net.TCPConn)  { c.SetLinger(0); c.Close() }

var crowds = []crowd{
	{"idle", 1000, false, "", nil},
	{"a byte of a request line", 500, false, "G", nil},
	{"half a request line", 500, false, "GET /x HT", nil},
	{"half a head", 500, false, to("GET /x") + "X-A: ", nil},
	{"a head up to its last line", 500, false, to("GET /x") + "X-A: b\r\n", nil},
	{"half a head that ends", 300, false, to("GET /x") + "X-A: ", half},
	{"half a head that is cut", 300, false, to("GET /x") + "X-A: ", cut},
	{"15 KiB of a head", 300, false, to("GET /x") + "X-A: " + strings.Repeat("a", 15<<10), nil},
	{"the beginning of TLS", 300, false, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", nil},
	{"the beginning of HTTP/2", 300, false, "PRI * HTTP/2.0\r\n\r\n", nil},
	{"a megabyte is announced and does not come", 300, false, post(megabyte + "\r\n"), nil},
	{"chunks are announced and do not come", 300, false, post("Transfer-Encoding: chunked\r\n\r\n"), nil},
	{"a chunk of a megabyte does not come", 300, false, post("Transfer-Encoding: chunked\r\n\r\n100000\r\n"), nil},
	{"one byte of a megabyte comes", 300, false, post(megabyte + "\r\na"), nil},
	{"100 KiB of a megabyte come", 100, false, post(megabyte + "\r\n" + strings.Repeat("a", 100<<10)), nil},
	{"all but the last byte of 4 KiB", 500, false, post("Content-Length: 4096\r\n\r\n" + strings.Repeat("a", 4095)), nil},
	{"a body that is asked for does not come", 300, false, post("Expect: 100-continue\r\n" + megabyte + "\r\n"), nil},
	{"the body of a refused request does not come", 300, false, "POST /x HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n", nil},
	{"requests whose clients are gone", 300, false, to("GET /x") + "\r\n", cut},
	{"requests whose clients close their half", 300, false, to("GET /x") + "\r\n", half},
	{"ten requests without reading", 100, false, strings.Repeat(to("GET /x")+"\r\n", 10), nil},
	{"answers of a megabyte without reading", 30, false, to("GET /large") + "\r\n", nil},
	{"idle at the admin API", 500, true, "", nil},
	{"half a head at the admin API", 500, true, to("POST /v1/calls"), nil},
	{"16 MiB are announced to the admin API", 8, true, to("POST /v1/calls") + "Content-Length: 16777216\r\n\r\n", nil},
	{"chunks are announced to the admin API", 100, true, to("POST /v1/calls") + "Transfer-Encoding: chunked\r\n\r\n", nil},
	{"streams of events without reading", 64, true, to("GET /v1/events") + "\r\n", nil},
}

// A load is requests that want memory, at a sidecar of its own with the defaults.
type load struct {
	name, keys string // keys are YAML of the upstream
	times      int    // at once
	body, kind string
	statuses   []int
	answer     func() string
}

func perKey(expression string) string {
	return fmt.Sprintf("limits: [{name: x, calls: 1000000, window: 1h, per_key: '%s'}]", expression)
}

func fixed(text string) func() string { return func() string { return text } }

var loads = []load{
	{"a megabyte of brackets", perKey(`json("a")`), 1, strings.Repeat("[", 1<<20), js, []int{400}, nil},
	{"16 times a megabyte of brackets", perKey(`json("a")`), 16, strings.Repeat("[", 1<<20), js, []int{400}, nil},
	{"9 MiB of brackets, max_body 16MiB", "max_body: 16MiB, " + perKey(`json("a")`), 1, strings.Repeat("[", 9<<20), js, []int{400}, nil},
	{"16 times objects in each other", perKey(`json("a")`), 16, strings.Repeat(`{"a":`, 200_000), js, []int{400}, nil},
	{"16 times an array of 500,000 numbers", perKey(`json("a") ?? "none"`), 16, `{"b":[` + strings.Repeat("1,", 500_000) + `1]}`, js, []int{200}, nil},
	{"16 times an object of 70,000 names", perKey(`json("a") ?? "none"`), 16, manyNames(70_000), js, []int{200}, nil},
	{"16 times a megabyte in one text", perKey(`json("a") ?? "none"`), 16, `{"b":"` + strings.Repeat(`\u0041`, 170_000) + `"}`, js, []int{200}, nil},
	{"16 times a form of 10,000 parameters", perKey(`form("a") != "" ? "a" : "b"`), 16, strings.Repeat("a1=b&", 9_999), form, []int{200}, nil},
	{"16 times a form of 500,000 parameters", perKey(`form("a") != "" ? "a" : "b"`), 16, strings.Repeat("a&", 500_000), form, []int{400}, nil},
	{"16 times a form of escapes", perKey(`form("a") != "" ? "a" : "b"`), 16, "b=" + strings.Repeat("%41", 340_000), form, []int{200}, nil},
	{"16 times a form of 10,000 parts", perKey(`form("a") != "" ? "a" : "b"`), 16, parts(manyParts(10_000)...), "multipart/form-data; boundary=b", []int{200, 400}, nil},
	{"16 answers of a megabyte of brackets", "preset: alipay", 16, "", "", []int{200}, fixed(withBody("", strings.Repeat("[", 1<<20)))},
	{"16 answers that unpack to 200 MB", "preset: alipay", 16, "", "", []int{200}, sync.OnceValue(func() string {
		return withBody("Content-Encoding: gzip\r\n", packed(strings.Repeat("a", 200_000_000)))
	})},
	{"16 answers of 64 MB", "preset: alipay", 16, "", "", []int{200}, sync.OnceValue(func() string { return withBody("", strings.Repeat("a", 64<<20)) })},
	{"16 answers with 200 KiB of head", "preset: alipay", 16, "", "", []int{200}, fixed(answer(strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 200)+"Content-Length: 0\r\n", ""))},
	{"16 answers behind 100,000 interim ones", "timeout: 20s", 16, "", "", []int{504}, fixed(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100_000) + ok)},
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"n%d":1,`, i)
	}
	return `{` + b.String() + `"z":1}`
}

func manyParts(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(`name="p%d"`, i), "x")
	}
	return all
}

// served checks that honest clients of both listeners get their answers.
func served(t *testing.T, s *sidecar, upstream string) {
	t.Helper()
	body := strings.Repeat("a", 20<<10)
	for range 4 {
		if r := ask(t, "POST", s.data(t, upstream), "/honest", body); r.status != 200 || r.outcome() != "done" {
			t.Errorf("an honest client got %d: %.300s", r.status, r.body)
		}
	}
	if r := ask(t, "POST", s.admin, "/v1/calls", `{"upstream":`+quote(upstream)+`,"method":"POST","path":"/honest","body":`+quote(body)+`}`); r.status != 202 {
		t.Errorf("an honest submission got %d: %.300s", r.status, r.body)
	}
	if state := s.state(t, upstream); state != "up" {
		t.Errorf("the upstream is %s", state)
	}
	s.alive(t)
}

// TestExhaustion has clients take all they can: connections, memory, time. The others are
// served, and the memory stays bounded.
func TestExhaustion(t *testing.T) {
	f := newFamily(t, "exhaustion", 30)
	large := withBody("", strings.Repeat("a", 1<<20))
	p := newPlatform(t, func(a arrival) (string, bool) {
		if a.target == "/large" {
			return large, true
		}
		return ok, true
	})
	s := start(t, "  a: {listen: '127.0.0.1:0', url: 'http://"+p.addr+"'}\n")
	for _, tt := range crowds {
		f.attack(fmt.Sprintf("%d clients: %s", tt.clients, tt.name), func(t *testing.T) {
			addr := s.data(t, "a")
			if tt.admin {
				addr = s.admin
			}
			s.forget(t)
			for range tt.clients {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				io.WriteString(c, tt.raw)
				if tt.then != nil {
					tt.then(c.(*net.TCPConn))
				}
			}
			served(t, s, "a")
			if peak := s.peak(t); peak > most {
				t.Errorf("the sidecar had %d MiB, at most %d", peak, most)
			}
		})
	}
	for _, tt := range loads {
		f.attack(tt.name, func(t *testing.T) { tt.run(t) })
	}
	f.attack("300 stored answers of a megabyte, listed five times at once", listed)
	f.attack("400 idle clients where 256 files may be open", fewFiles)
}

// run sends a load.
func (l load) run(t *testing.T) {
	p := newPlatform(t, func(a arrival) (string, bool) {
		if l.answer != nil && a.target != "/honest" {
			return l.answer(), true
		}
		return answer("Content-Length: 40\r\n", `{"x_response":{"code":"10000","a":"abc"}`), true
	})
	s := start(t, "  a: {listen: '127.0.0.1:0', url: 'http://"+p.addr+"', retry: {attempts: 1}, "+l.keys+"}\n  honest: {listen: '127.0.0.1:0', url: 'http://"+p.addr+"'}\n")
	var wg sync.WaitGroup
	for range l.times {
		wg.Go(func() {
			lines := got("Content-Type: " + l.kind)
			if l.kind == "" {
				lines = nil
			}
			r, err := tryAsk("POST", s.data(t, "a"), "/x", l.body, lines...)
			if err != nil {
				t.Error(err)
				return
			}
			fits := false
			for _, status := range l.statuses {
				fits = fits || r.status == status
			}
			if !fits {
				t.Errorf("status %d, want %v: %.300s", r.status, l.statuses, r.body)
			}
		})
	}
	wg.Wait()
	served(t, s, "honest")
	if peak := s.peak(t); peak > most {
		t.Errorf("the sidecar had %d MiB, at most %d", peak, most)
	} else {
		t.Logf("%d MiB", peak)
	}
}

// listed stores answers and lists them.
func listed(t *testing.T) {
	large := withBody("", strings.Repeat("a", 1_000_000))
	p := newPlatform(t, always(large))
	path := config(t, "admin: 127.0.0.1:0\nstore: s.db\ngrace: 40s\nupstreams: {a: {url: 'http://"+p.addr+"', listen: '127.0.0.1:0'}}\n")
	s := startFile(t, path)
	for range 300 {
		if r := ask(t, "POST", s.admin, "/v1/calls", `{"upstream":"a","method":"GET","path":"/x"}`); r.status != 202 {
			t.Fatalf("%+v", r)
		}
	}
	until(t, "all calls are done", func() bool {
		return strings.Count(ask(t, "GET", s.admin, "/v1/calls?state=done&page_size=1000", "").body, `"state":"done"`) == 300
	})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if r, err := tryAsk("GET", s.admin, "/v1/calls?page_size=1000", ""); err != nil || r.status != 200 || len(r.body) > 1<<20 {
				t.Errorf("%d with %d bytes, %v", r.status, len(r.body), err)
			}
		})
	}
	wg.Wait()
	if peak := s.peak(t); peak > most {
		t.Errorf("the sidecar had %d MiB, at most %d", peak, most)
	}
	s.alive(t)
}

// fewFiles runs a sidecar that may open few files.
func fewFiles(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	real := binary
	wrapped := t.TempDir() + "/few"
	if err := os.WriteFile(wrapped, []byte("#!"+shell+"\nulimit -n 256\nexec '"+real+"' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	binary = wrapped
	defer func() { binary = real }()
	p := newPlatform(t, always(ok))
	s := start(t, "  a: {listen: '127.0.0.1:0', url: 'http://"+p.addr+"'}\n")
	first := dial(t, s.data(t, "a"))
	for range 400 {
		c, err := net.Dial("tcp", s.data(t, "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	io.WriteString(first, to("GET /x")+"\r\n")
	if r, _ := first.reply(t, "GET"); r.status != 200 {
		t.Errorf("a client that was there before got %+v", r)
	}
	if state := s.state(t, "a"); state != "up" {
		t.Errorf("the upstream is %s", state)
	}
	s.alive(t)
}
