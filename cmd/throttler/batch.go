package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-30fe103d/throttler/api/client"
)

// A batch is a body in NDJSON.
type batch []byte

// submitBatch submits the calls of the file that --batch names, and writes the result of each line.
func submitBatch(cmd *cobra.Command, name string) error {
	form, err := formOf(cmd)
	if err != nil {
		return err
	}
	in, err := readFile(cmd, "--batch", name)
	if err != nil {
		return err
	}
	body, err := callAPI(cmd, http.MethodPost, "/v1/calls/batch", nil, batch(in))
	if err != nil {
		return err
	}
	var (
		results []client.BatchResult
		names   []string
		refused int
	)
	lines := bytes.Split(bytes.TrimSpace(body), []byte("\n"))
	for _, line := range lines {
		r, err := decode[client.BatchResult](line)
		switch {
		case err != nil:
			return err
		case r.Call != nil:
			names = append(names, r.Call.Id)
		default:
			refused++
		}
		results = append(results, *r)
	}
	p := printout{body: body, names: names, table: func(w io.Writer) error { return writeResults(w, results) }}
	if form != "json" { // that is the answer as it came
		p.items = "results"
		p.body = fmt.Appendf(nil, `{"results":[%s]}`, bytes.Join(lines, []byte(",")))
	}
	if err := p.print(cmd); err != nil {
		return err
	}
	if refused > 0 {
		return coded(exitRefused, fmt.Errorf("%d of %s refused; see their reasons", refused, counted(len(results), "line")))
	}
	return nil
}

func writeResults(w io.Writer, results []client.BatchResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LINE\tRESULT\tCALL\tDETAIL")
	for _, r := range results {
		switch {
		case r.Call == nil && r.Problem == nil: // of a sidecar of another version
			fmt.Fprintf(t, "%d\t\t\t\n", r.Line)
		case r.Call == nil:
			fmt.Fprintf(t, "%d\trefused\t\t%s: %s\n", r.Line, r.Problem.Reason, shown(r.Problem.Detail))
		case r.Replayed:
			fmt.Fprintf(t, "%d\tthere already\t%s\t%s\n", r.Line, r.Call.Id, r.Call.State)
		default:
			fmt.Fprintf(t, "%d\taccepted\t%s\t%s\n", r.Line, r.Call.Id, r.Call.State)
		}
	}
	return t.Flush()
}

// submitArgs wants the arguments of one call or, with --batch, neither these nor the flags of one.
func submitArgs(cmd *cobra.Command, args []string) error {
	if !cmd.Flags().Changed("batch") {
		return exactly("UPSTREAM", "TARGET")(cmd, args)
	}
	var other string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "batch" && f.Name != "output" {
			other = f.Name
		}
	})
	if other != "" {
		return usage("--batch has calls with members of their own, and --%s is one of a single call; give one of them", other)
	}
	return exactly()(cmd, args)
}

// jsonBody returns a body, and its media type.
func jsonBody(in any) (body []byte, kind string, err error) {
	if lines, ok := in.(batch); ok {
		return lines, "application/x-ndjson", nil
	}
	body, err = json.Marshal(in)
	return body, "application/json", err
}
