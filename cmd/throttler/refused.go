package main

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
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
			flags, query := cmd.Flags(), url.Values{}
			for _, name := range []string{"upstream", "reason", "cursor"} {
				v, _ := flags.GetString(name)
				if v == "" && flags.Changed(name) { // such as an unset variable of a script
					return usage("--%s is empty, and would choose all; leave it out, or give it a value", name)
				}
				if v != "" {
					query.Set(name, v)
				}
			}
			size, _ := flags.GetInt("page-size")
			query.Set("page_size", strconv.Itoa(size))
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
	if page.Next != "" {
		fmt.Fprintf(w, "more: --cursor %s\n", page.Next)
	}
	return err
}
