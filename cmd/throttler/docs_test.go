package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// example finds the first command of a document, and what it says it prints.
var example = regexp.MustCompile("(?s)```sh\ncd docs\nthrottler (.*?)\n```\n\n```\n(.*?)```")

// TestPreviewExample runs the command of docs/preview.md. UPDATE=1 writes what it
// prints, and the picture, into docs.
func TestPreviewExample(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	doc := filepath.Join(docs, "preview.md")
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	at := example.FindSubmatchIndex(text)
	if at == nil {
		t.Fatal("there is no example in docs/preview.md")
	}
	args := words(string(text[at[2]:at[3]]))
	update := os.Getenv("UPDATE") != ""
	picture := filepath.Join(docs, args[len(args)-1])
	if !update {
		args[len(args)-1] = filepath.Join(t.TempDir(), "preview.svg")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = docs
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := string(text[at[4]:at[5]])
	if update {
		if err := os.WriteFile(doc, []byte(strings.Replace(string(text), want, string(out), 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(out) != want {
		t.Errorf("docs/preview.md says\n%s\nand the command prints\n%s\nUPDATE=1 go test ./cmd/throttler -run PreviewExample writes it anew", want, out)
	}
	kept, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if drawn, err := os.ReadFile(args[len(args)-1]); err != nil || !bytes.Equal(drawn, kept) {
		t.Errorf("the command draws another picture than %s, %v; UPDATE=1 writes it anew", picture, err)
	}
}

// words splits a command line that has single quotes and ends of lines in it.
func words(line string) []string {
	var all []string
	for _, w := range regexp.MustCompile(`'[^']*'|[^\s\\]+`).FindAllString(line, -1) {
		all = append(all, strings.Trim(w, "'"))
	}
	return all
}
