package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newCallsRefused() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refused",
		Short: "List the last calls that were refused, and why, the newest first",
		Long: `List the last 10,000 calls that Throttler has refused since it began, and why, the newest
first. Nothing of them was sent.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := pageQuery(cmd.Flags(), "upstream", "reason", "cursor")
			if err != nil {
				return err
			}
			body, page, err := read[client.Refusals](cmd, "/v1/refusals", query)
			if err != nil {
				return err
			}
			var names []string
			for _, r := range page.Refusals {
				names = append(names, r.Id)
			}
			return printout{body: body, items: "refusals", names: names, table: func(w io.Writer) error { return writeRefusals(w, page, time.Now()) }}.print(cmd)
		},
	}
	cmd.Flags().String("upstream", "", "only calls of this `upstream`")
	cmd.Flags().String("reason", "", "only calls that were refused for this `reason`, such as full")
	cmd.Flags().String("cursor", "", "next `page`, as the page before says")
	cmd.Flags().Int("page-size", 100, "how many, at most")
	completeTargets(cmd)
	outputFlag(cmd)
	return cmd
}

func writeRefusals(w io.Writer, page *client.Refusals, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CALL\tUPSTREAM\tREFUSED\tREASON\tDETAIL")
	for _, r := range page.Refusals {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Id, r.Upstream, instantText(r.At, now), r.Reason, shown(r.Detail))
	}
	err := t.Flush()
	writeNext(w, page.Next)
	return err
}
