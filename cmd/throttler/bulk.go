package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

// bulkFlags adds the flags of a command for many calls.
func bulkFlags(cmd *cobra.Command) {
	for _, f := range []struct{ name, use string }{
		{"upstream", "all of this `upstream`"}, {"limit", "all that take permits of this `limit`"}, {"key", "all that take permits of this `key` of a limit"},
		{"state", "the `state` of the calls that the command concerns; it may be left out"}, {"flow", "all of this `flow`"}, {"number", "all with this business `number`"},
	} {
		cmd.Flags().String(f.name, "", f.use)
	}
	completeTargets(cmd)
	cmd.Flags().Bool("dry-run", false, "only tell how many calls there are")
	reasonFlag(cmd, "kept in the audit")
	confirmFlag(cmd)
	outputFlag(cmd)
}

// bulkFilter returns the calls that the flags choose, of the one state that a command concerns. It
// is empty if there are ids instead.
func bulkFilter(cmd *cobra.Command, ids []string, state string) (f client.BulkFilter, err error) {
	flags := cmd.Flags()
	defer func() {
		switch dry, _ := flags.GetBool("dry-run"); {
		case err != nil:
		case emptyFilter(f) == (len(ids) == 0):
			err = usage("give either ids of calls, or flags such as --upstream")
		case dry && len(ids) > 0:
			err = usage("--dry-run counts the calls that flags such as --upstream choose; with ids, look at them by throttler calls get")
		}
	}()
	if given, _ := flags.GetString("state"); given != "" && given != state {
		return f, usage("--state is %q; the command concerns calls that are %s", given, state)
	}
	for _, name := range []string{"upstream", "limit", "key", "flow", "number"} {
		if v, _ := flags.GetString(name); v == "" && flags.Changed(name) { // such as an unset variable of a script
			return f, usage("--%s is empty, and would choose all calls; leave it out, or give it a value", name)
		}
	}
	f.Upstream, _ = flags.GetString("upstream")
	f.Limit, _ = flags.GetString("limit")
	f.Key, _ = flags.GetString("key")
	f.Flow, _ = flags.GetString("flow")
	f.Number, _ = flags.GetString("number")
	return f, nil
}

func emptyFilter(f client.BulkFilter) bool {
	return len(f.Calls) == 0 && f.Upstream == "" && f.Limit == "" && f.Key == "" && f.Flow == "" && f.Number == ""
}

// bulk counts the calls of an action, asks, and does it.
func bulk(cmd *cobra.Command, in client.Bulk) error {
	in.DryRun = true
	body, counts, err := acted(cmd, in)
	if err != nil {
		return err
	}
	if dry, _ := cmd.Flags().GetBool("dry-run"); !dry && counts.Matched > 0 {
		rest := ""
		if counts.More {
			rest = ", the first of more"
		}
		if err := confirm(cmd, "%s: %s%s", in.Action, counted(counts.Matched, "call"), rest); err != nil {
			return err
		}
		in.DryRun, in.Filter = false, client.BulkFilter{} // those that were counted, and no others
		for _, r := range counts.Results {
			in.Filter.Calls = append(in.Filter.Calls, r.Call)
		}
		more := counts.More
		if body, counts, err = acted(cmd, in); err != nil {
			return err
		}
		counts.More = more
	}
	var names []string
	for _, r := range counts.Results {
		names = append(names, r.Call)
	}
	if err := (printout{body: body, items: "results", names: names, table: func(w io.Writer) error { return writeBulk(w, counts) }}).print(cmd); err != nil {
		return err
	}
	if n := doubtful(in.Action, counts); n > 0 {
		return coded(exitRefused, fmt.Errorf("%s may have been executed: decide about them (throttler calls list --needs-person)", counted(n, "call")))
	}
	if counts.Refused > 0 {
		return coded(exitRefused, fmt.Errorf("%s refused; see their reasons", counted(counts.Refused, "call")))
	}
	return nil
}

// doubtful counts the calls that were taken back, and may have been executed before.
func doubtful(action string, r *client.BulkResult) (n int) {
	for _, item := range r.Results {
		if !r.DryRun && action == "cancel" && item.Reason == "" && item.State == client.StateUnknown {
			n++
		}
	}
	return n
}

func acted(cmd *cobra.Command, in client.Bulk) ([]byte, *client.BulkResult, error) {
	body, err := callAPI(cmd, http.MethodPost, "/v1/calls/bulk", nil, in)
	if err != nil {
		return nil, nil, err
	}
	result, err := decode[client.BulkResult](body)
	return body, result, err
}

// writeBulk writes the counts of an action, and each call that was refused.
func writeBulk(w io.Writer, r *client.BulkResult) error {
	more := ""
	if r.More {
		more = "; there are more, run it again"
	}
	if r.DryRun {
		_, err := fmt.Fprintf(w, "%s would be changed%s\n", counted(r.Matched, "call"), more)
		return err
	}
	for _, item := range r.Results {
		switch {
		case item.Reason != "":
			fmt.Fprintf(w, "%s  refused: %s\n", item.Call, item.Detail)
		case item.State == client.StateUnknown:
			fmt.Fprintf(w, "%s  unknown: an earlier attempt may have executed it\n", item.Call)
		}
	}
	_, err := fmt.Fprintf(w, "%d done, %d refused%s\n", r.Succeeded, r.Refused, more)
	return err
}
