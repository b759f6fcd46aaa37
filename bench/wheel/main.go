// Command wheel measures pkg/wheel and other timers for Go and Java: one table with
// ratios to time.AfterFunc, and the targets.
//
// Each cell of the table runs in a process of its own. All cells run once, then all
// again in the opposite order, so that other load of the machine meets all peers
// alike. Figures are medians of all samples, ratios medians of each round's ratio.
//
//	go run . -only '^late (time.AfterFunc|wheel) '    some cells: kind, peer, number
//	go run . -quick                                   check that everything runs
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// handWritten is a line of the document: the text after it is kept.
const handWritten = "<!-- From here on written by hand. -->\n"

func main() {
	var c cell
	flag.BoolVar(&c.quick, "quick", false, "a smoke run: one round, short, at most 100,000 pending")
	rounds := flag.Int("rounds", 5, "number of rounds; figures are medians over them")
	only := flag.String("only", "", "measure only cells, as `ops wheel 1000000`, that match this expression")
	document := flag.String("o", "", "write the tables to this file, above its hand-written part")
	flag.StringVar(&c.kind, "cell", "", "measure one cell of this kind, in this process")
	flag.StringVar(&c.peer, "peer", "", "with -cell: the peer")
	flag.IntVar(&c.n, "n", 0, "with -cell: pending timeouts, or timeouts a second")
	flag.Parse()
	if c.kind != "" {
		out := results{}
		measure(c, out)
		json.NewEncoder(os.Stdout).Encode(out)
		return
	}
	if c.quick {
		*rounds = 1
	}
	if err := run(c.quick, *rounds, *only, *document); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(quick bool, rounds int, only, document string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-wheel")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{quick: quick, figures: map[cell][]results{}, start: time.Now()}
	if b.java, err = compileNetty(dir); err != nil {
		b.withoutNetty = err
		fmt.Fprintf(os.Stderr, "without Netty: %v\n", err)
	}
	for i := range rounds {
		b.round(i, match)
		fmt.Fprintf(os.Stderr, "round %d of %d done after %v\n", i+1, rounds, time.Since(b.start).Round(time.Second))
	}
	var text bytes.Buffer
	b.print(&text, rounds)
	if document == "" {
		_, err = io.Copy(os.Stdout, &text)
		return err
	}
	old, err := os.ReadFile(document)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	_, below, _ := strings.Cut(string(old), handWritten)
	fmt.Print(text.String())
	return os.WriteFile(document, []byte(text.String()+handWritten+below), 0o644)
}

// bench collects the figures of all cells, one results for each round. A round in which
// a cell did not run, or failed, has nil.
type bench struct {
	start        time.Time
	java         []string // command for Netty.java without its arguments; nil if Netty is not available
	withoutNetty error
	quick        bool
	figures      map[cell][]results
}

// cellTimeout is the longest time of a cell; then its process is killed as stuck.
const cellTimeout = 90 * time.Second

const nettyJar = "/usr/share/java/netty-common.jar"

// compileNetty compiles Netty.java into dir. It needs a JDK and Debian's
// libnetty-java.
func compileNetty(dir string) ([]string, error) {
	if _, err := os.Stat(nettyJar); err != nil {
		return nil, fmt.Errorf("%w: apt-get install libnetty-java", err)
	}
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, fmt.Errorf("%w: apt-get install default-jdk-headless", err)
	}
	if out, err := exec.Command("javac", "-d", dir, "-cp", nettyJar, "Netty.java").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w: %s", err, out)
	}
	return []string{"java", "-Xmx6g", "-cp", nettyJar + string(filepath.ListSeparator) + dir, "Netty"}, nil
}

// cells returns the cells of the table, in the order of their runs.
func cells(quick bool) (all []cell) {
	add := func(kind string, n int, peers ...string) {
		for _, peer := range peers {
			all = append(all, cell{kind, peer, n, quick})
		}
	}
	pending := []int{0, 1_000_000, 10_000_000}
	if quick {
		pending = []int{0, 100_000}
	}
	for _, n := range pending {
		for _, peer := range peers {
			if peer != "go-zero" || n < 10_000_000 { // it takes half a minute to fill
				add("ops", n, peer)
			}
		}
	}
	// The passive wheel does not run by itself, and tasks run the same in both forms.
	timers := slices.DeleteFunc(slices.Clone(peers), func(peer string) bool { return peer == passive || peer == function })
	add("late", 1_000, timers...)
	add("late", 200_000, timers...)
	add("lock", 200_000, afterFunc, handler)
	add("idle", 0, append([]string{none}, timers...)...)
	return all
}

// round measures all cells once, and idle cells five times at once in the first round.
func (b *bench) round(turn int, match *regexp.Regexp) {
	var idlers sync.WaitGroup
	var mu sync.Mutex
	measure := func(c cell) {
		out, err := b.process(c)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n", c, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, spent := range out["overrun"] {
			fmt.Fprintf(os.Stderr, "%v: filling took %.1fs, longer than the lead\n", c, spent)
		}
		b.figures[c] = append(b.figures[c], out)
	}
	all := cells(b.quick)
	if turn%2 == 1 {
		slices.Reverse(all)
	}
	for _, c := range all {
		switch {
		case !match.MatchString(c.String()) || c.peer == netty && b.java == nil:
		case turn > 0 && c.once() || c.kind == "idle":
		default:
			measure(c)
		}
	}
	if turn > 0 {
		return
	}
	for _, c := range all {
		if c.kind == "idle" && match.MatchString(c.String()) && (c.peer != netty || b.java != nil) {
			for range 5 {
				idlers.Go(func() { measure(c) })
			}
		}
	}
	idlers.Wait()
}

// process measures a cell in a process of its own.
func (b *bench) process(c cell) (results, error) {
	quick := strconv.FormatBool(c.quick)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cellTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-cell", c.kind, "-peer", c.peer, "-n", strconv.Itoa(c.n), "-quick="+quick)
	if c.peer == netty {
		cmd = exec.CommandContext(ctx, b.java[0], append(b.java[1:len(b.java):len(b.java)], c.kind, strconv.Itoa(c.n), quick)...)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if c.kind == "idle" {
		// The cell counts after it has settled, until its input ends.
		idle := 10*time.Second + settle
		if c.quick {
			idle = 2*time.Second + settle
		}
		time.Sleep(idle)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		text := stderr.String()
		return nil, fmt.Errorf("%w: %s", err, text[:min(len(text), 2000)])
	}
	out := results{}
	return out, json.Unmarshal(stdout.Bytes(), &out)
}
