package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// TestMistakes: each file of testdata/mistakes has one mistake, and gives one fault, with
// its line and without secrets. To write the messages anew: go test -run TestMistakes -update.
func TestMistakes(t *testing.T) {
	archives, err := filepath.Glob("testdata/mistakes/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	keysOfMistakes(t)
	mistakes := 0
	for _, name := range archives {
		path := filepath.Join(here, name)
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			mistakes++
			file, golden := archive.Files[i], &archive.Files[i+1]
			t.Run(strings.TrimSuffix(file.Name, ".yaml"), func(t *testing.T) {
				if golden.Name != strings.Replace(file.Name, ".yaml", ".golden", 1) {
					t.Fatalf("%s comes after %s", golden.Name, file.Name)
				}
				got := messageOf(t, file)
				if *update {
					golden.Data = []byte(got)
				}
				if got != string(golden.Data) {
					t.Errorf("message:\n%s\nwant:\n%s", got, golden.Data)
				}
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if mistakes < 70 {
		t.Errorf("%d mistakes, want 70 or more", mistakes)
	}
}

// faultWithLine matches a fault with its line.
var faultWithLine = regexp.MustCompile(`^[a-z-]+\.yaml:\d+: `)

// messageOf returns the one message of a file.
func messageOf(t *testing.T, file txtar.File) string {
	t.Helper()
	_, err := load(file.Name, file.Data, alone, nil)
	var faults Errors
	if !errors.As(err, &faults) {
		t.Fatalf("load gives %v, want Errors", err)
	}
	text := err.Error() + "\n"
	switch {
	case len(faults) != 1:
		t.Errorf("%d faults of one mistake:\n%s", len(faults), text)
	case !faultWithLine.MatchString(text) && file.Name != "no-upstreams.yaml":
		t.Errorf("no file and line: %s", text)
	case strings.Contains(text, "hunter2") || strings.Contains(text, "12345678"):
		t.Errorf("a message shows a secret: %s", text)
	}
	return text
}

// keysOfMistakes makes the file and the variables that mistakes refer to.
func keysOfMistakes(t *testing.T) {
	t.Helper()
	private := gateway.NewKeys()
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(elliptical)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"RSA": private.Private, "PUBLIC": private.Public, "EC": base64.StdEncoding.EncodeToString(der), "GARBAGE": "hunter2",
		"SECRET": "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24)), "NOT_SET": "",
	} {
		t.Setenv(name, value)
	}
	if err := os.WriteFile("open.pem", nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

var inFile = regexp.MustCompile(`^line (\d+)$`)

// FuzzParse: Parse never panics, and each fault has a line that is in the text, or none.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, name := range append(files, "../../configs/throttler.yaml", "../../configs/alipay.yaml") {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	archives, _ := filepath.Glob("testdata/mistakes/*.txtar")
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	lineBreak := regexp.MustCompile("[\n\r\u0085\u2028\u2029]") // of YAML
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := Parse(text)
		if err == nil {
			return
		}
		var faults Errors
		if !errors.As(err, &faults) || len(faults) == 0 {
			t.Fatalf("Parse gives %v", err)
		}
		last := len(lineBreak.FindAllIndex(text, -1)) + 1
		for _, fault := range faults {
			line := 0
			if m := inFile.FindStringSubmatch(fault.Place); m != nil {
				line, _ = strconv.Atoi(m[1])
			}
			if (line == 0) != (fault.Place == "") || line > last {
				t.Errorf("%v: a text of %d lines", fault, last)
			}
		}
	})
}
