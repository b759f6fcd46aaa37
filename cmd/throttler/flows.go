package main

import (
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newFlows() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flows UPSTREAM",
		Short: "List the flows of an upstream: calls waiting, the oldest, and the share of the last 10 minutes",
		Args:  exactly("UPSTREAM"), ValidArgsFunction: completeFirst(completeUpstreams),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, all, err := read[client.Flows](cmd, "/v1/upstreams/"+url.PathEscape(args[0])+"/flows", nil)
			if err != nil {
				return err
			}
			var names []string
			for _, f := range all.Flows {
				names = append(names, plain(f.Flow))
			}
			return printout{body: body, items: "flows", names: names, table: func(w io.Writer) error { return writeFlows(w, all, time.Now()) }}.print(cmd)
		},
	}
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

// writeFlows writes flows as a table.
func writeFlows(w io.Writer, all *client.Flows, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FLOW\tWEIGHT\tWAITING\tOLDEST\tSENT\tSHARE")
	for _, f := range all.Flows {
		oldest := ""
		if !f.OldestAcceptedAt.IsZero() {
			oldest = durationText(now.Sub(f.OldestAcceptedAt))
		}
		fmt.Fprintf(t, "%s\t%g\t%d\t%s\t%d\t%.0f%%\n", plain(f.Flow), f.Weight, f.Waiting, oldest, f.Sent, 100*f.Share)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s since %s\n", counted(all.Sent, "attempt"), instantText(all.Since, now))
	return err
}
