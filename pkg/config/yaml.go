package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cast"
	"go.yaml.in/yaml/v3"
)

// parse reads the YAML of a file, of which messages have the name. Its error is [Errors].
func parse(name string, text []byte, reading mode) (map[string]any, *places, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return map[string]any{}, newPlaces(name, &root), nil // the scheduler reports the keys that an empty file lacks
	} else if err != nil {
		return nil, nil, syntax(name, text, err)
	}
	at := newPlaces(name, &root)
	var next yaml.Node
	if err := decoder.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, nil, Errors{{at.at(next.Line), "", errors.New("there is a --- with another document, and a file must hold one; remove it, or make it a file of its own")}}
	}
	if reading == closed {
		if err := bounded(at, &root); err != nil {
			return nil, nil, err
		}
	}
	var doc any
	if err := root.Decode(&doc); err != nil {
		return nil, nil, syntax(name, text, err)
	}
	switch doc := doc.(type) {
	case nil:
		return map[string]any{}, at, nil
	case map[string]any:
		return doc, at, nil
	case map[any]any: // a key is no text: checkKeys reports it
		return cast.ToStringMap(doc), at, nil
	}
	return nil, nil, Errors{{at.at(root.Line), "", errors.New("the file must be a section of keys, such as upstreams: on the first line")}}
}

// located matches the errors of the YAML package that have a line of their own.
var located = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// syntax turns an error of the YAML package into faults.
func syntax(name string, text []byte, err error) Errors {
	at := &places{file: name}
	var several *yaml.TypeError
	if !errors.As(err, &several) {
		message, _ := strings.CutPrefix(err.Error(), "yaml: ")
		least := 0
		if m := located.FindStringSubmatch(message); m != nil {
			least, _ = strconv.Atoi(m[1])
			message = m[2]
		}
		line := faultyLine(text, err, message, least)
		if strings.HasPrefix(message, misplacedKey) && line > 1 && spaceless.MatchString(lineOf(text, line-1)) {
			return Errors{{at.at(line - 1), "", errors.New("the colon has no space after it; write key: value")}}
		}
		return Errors{{at.at(line), "", errors.New(wordSyntax(message, lineOf(text, line), lineOf(text, line-1)))}}
	}
	var faults Errors
	for _, message := range several.Errors {
		line := 0
		if m := located.FindStringSubmatch(message); m != nil {
			line, _ = strconv.Atoi(m[1])
			message = m[2]
		}
		faults = append(faults, &Fault{at.at(line), "", errors.New(wordSyntax(message, "", ""))})
	}
	return faults
}

// faultyLine returns the first line with which the text has its fault. The line of the YAML
// package is at most that one: it is sometimes one too low, and sometimes that of the
// section which has the fault.
func faultyLine(text []byte, err error, message string, least int) int {
	if strings.HasPrefix(message, "did not find expected") {
		least++ // counted from 0; where a bracket is open, it is that one's line
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	least = max(1, min(least, len(lines)))
	return least + sort.Search(len(lines)-least, func(n int) bool {
		var doc any
		found := yaml.Unmarshal(bytes.Join(lines[:least+n], nil), &doc)
		return found != nil && strings.HasSuffix(found.Error(), message) && strings.HasSuffix(err.Error(), message)
	})
}

// lineOf returns a line of a text, without white space at its end; line 0 is empty.
func lineOf(text []byte, n int) string {
	if n == 0 {
		return ""
	}
	lines := bytes.Split(text, []byte("\n"))
	return string(bytes.TrimRight(lines[min(n, len(lines))-1], " \r"))
}

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// misplacedKey begins the error of the YAML package for a colon where no key can be.
const misplacedKey = "mapping values are not allowed"

var (
	tabbed     = regexp.MustCompile(`^\s*\t`)
	quotedHead = regexp.MustCompile(`: *(["']).*["'] *[^ #,}]`)              // when: "a" == method
	spaceless  = regexp.MustCompile(`^ *(?:- )?[A-Za-z_][\w-]*:[^ :][^ ]*$`) // url:http://…
	oddStart   = regexp.MustCompile("[:,\\[{-] *([@`%])")
	definedAt  = regexp.MustCompile(`^mapping key "(.*)" already defined at line (\d+)$`)
	anchorless = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// wordSyntax words an error of the YAML package, with the likely intent of the line; the
// line before it tells more.
func wordSyntax(message, line, before string) string {
	const expression = "; put an expression in single quotes, such as when: 'method == \"POST\"'"
	switch {
	case tabbed.MatchString(line):
		return "is indented with a tab; use spaces"
	case strings.HasPrefix(message, "did not find expected") && quotedHead.MatchString(line):
		return "there is more after the closing quote" + expression
	case strings.HasSuffix(message, "expected ',' or '}'") && strings.Count(line, "{") <= strings.Count(line, "}"),
		strings.HasSuffix(message, "expected ',' or ']'") && strings.Count(line, "[") <= strings.Count(line, "]"):
		return "a comma is missing in the brackets of this line, or a text with special characters needs quotes"
	case strings.HasSuffix(message, "expected ',' or '}'"):
		return "the { on this line has no }; close it, or put quotes around a text with special characters in it"
	case strings.HasSuffix(message, "expected ',' or ']'"):
		return "the [ on this line has no ]; close it, or put quotes around a text with special characters in it"
	case strings.HasPrefix(message, "did not find expected"):
		return "is not indented like the keys or items that it follows; begin it in their column"
	case strings.HasPrefix(message, misplacedKey) && strings.Count(line, ": ") > 1:
		return "there is a second colon with a space in this line; put quotes around a text with a colon in it"
	case strings.HasPrefix(message, misplacedKey) && indentation(line) > indentation(before):
		return "is indented further than the key before it; begin it in the column of that"
	case strings.HasPrefix(message, misplacedKey):
		return "a key cannot stand here; begin it in the column of the keys before it, write a space after the colon of the line before, or put quotes around a text with a colon in it"
	case strings.HasPrefix(message, "could not find expected ':'"):
		return "a key lacks its colon and a space; write key: value"
	case message == "found unexpected end of stream":
		return "the quote that is opened here is not closed"
	case strings.HasPrefix(message, "found unknown escape"):
		return `there is an unknown escape after \ in double quotes; use single quotes`
	case strings.HasPrefix(message, "found character that cannot start"):
		if m := oddStart.FindStringSubmatch(line); m != nil {
			return "a text that begins with " + m[1] + " needs quotes"
		}
	}
	if m := definedAt.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s is given twice, first on line %s; remove one", m[1], m[2])
	}
	if m := anchorless.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("*%s names an anchor that is not there; a text that begins with * needs quotes", m[1])
	}
	return message
}
