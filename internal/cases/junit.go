package cases

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Suite is the results of a file.
type Suite struct {
	File    string
	Results []Result
	Took    time.Duration
}

// Failed returns the number of cases that failed.
func (s Suite) Failed() (n int) {
	for _, r := range s.Results {
		if len(r.Failures) > 0 {
			n++
		}
	}
	return n
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"` // seconds
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr"`
	Line    string        `xml:"line,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes results as the XML of JUnit, which CI systems read. Characters that XML cannot
// hold become U+FFFD. The error is that of the writer.
func JUnit(w io.Writer, suites ...Suite) error {
	all := junitSuites{}
	for _, s := range suites {
		suite := junitSuite{Name: s.File, Tests: len(s.Results), Failures: s.Failed(), Time: fmt.Sprintf("%.3f", s.Took.Seconds())}
		all.Tests, all.Failures = all.Tests+suite.Tests, all.Failures+suite.Failures
		for _, r := range s.Results {
			line := r.Place[strings.LastIndexAny(r.Place, ": ")+1:]
			c := junitCase{Class: r.Of, Name: r.Name, File: s.File, Line: line}
			if len(r.Failures) > 0 {
				c.Failure = &junitFailure{r.Failures[0], strings.Join(append(r.Failures, r.Source), "\n")}
			}
			suite.Cases = append(suite.Cases, c)
		}
		all.Suites = append(all.Suites, suite)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}
