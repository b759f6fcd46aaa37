package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

func newTest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Test the rules of a configuration or a preset with cases",
		Long: `Test the rules of a configuration or a preset. A file has cases: a request, the answers
of the platform, and what has to follow. The sidecar's own scheduler plays them in
virtual time, and nothing is sent. See docs/cases.md for the members of a file, and
throttler presets cases NAME for the cases of a preset.`,
		Example: `  throttler test shop_test.yaml
  throttler test shop_test.yaml refunds_test.yaml --junit report.xml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("FILE is missing; give the path of a file of cases, as in throttler test shop_test.yaml")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			suites, err := playCases(args)
			if err != nil {
				return err
			}
			report, _ := cmd.Flags().GetString("junit")
			return errors.Join(writeJUnit(report, suites), tellCases(cmd.OutOrStdout(), suites))
		},
	}
	cmd.Flags().String("junit", "", "write the results as JUnit XML into this `file`")
	return cmd
}

// playCases plays the cases of files, after all files have been read.
func playCases(files []string) (suites []cases.Suite, err error) {
	read := make([][]config.Case, len(files))
	var faults config.Errors
	for i, file := range files {
		var e config.Errors
		if read[i], err = config.LoadCases(file); errors.As(err, &e) {
			faults = append(faults, e...)
		} else if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no file %s", file)
		} else if err != nil {
			return nil, err
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	for i, file := range files {
		begun := time.Now()
		s := cases.Suite{File: file}
		for _, c := range read[i] {
			s.Results = append(s.Results, cases.Play(c))
		}
		s.Took = time.Since(begun)
		suites = append(suites, s)
	}
	return suites, nil
}

// tellCases writes each failure on a line, and a summary. It returns an error if a case failed.
func tellCases(w io.Writer, suites []cases.Suite) error {
	all, failed := 0, 0
	for _, s := range suites {
		for _, r := range s.Results {
			for _, failure := range r.Failures {
				fmt.Fprintf(w, "%s: %s: %s\n", r.Place, r.Name, failure)
			}
		}
		all, failed = all+len(s.Results), failed+s.Failed()
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d case(s) failed", failed, all)
	}
	_, err := fmt.Fprintf(w, "ok: %d case(s)\n", all)
	return err
}

// writeJUnit writes a report, if there is a path for one.
func writeJUnit(path string, suites []cases.Suite) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--junit: %w", err)
	}
	return errors.Join(cases.JUnit(f, suites...), f.Close())
}
