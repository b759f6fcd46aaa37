package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func newPauses() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pauses",
		Short: "List the pauses of upstreams, limits and keys: by whom, since when, why",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, all, err := read[client.Pauses](cmd, "/v1/pauses", nil)
			if err != nil {
				return err
			}
			var ids []string
			for _, p := range all.Pauses {
				ids = append(ids, p.Id)
			}
			return printout{body: body, items: "pauses", names: ids, table: func(w io.Writer) error { return writePauses(w, all.Pauses, time.Now()) }}.print(cmd)
		},
	}
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func writePauses(w io.Writer, pauses []client.Pause, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tUPSTREAM\tLIMIT\tKEY\tUNTIL\tBY\tREASON")
	for _, p := range pauses {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Id, p.Upstream, p.Limit, plain(p.Key), instantText(p.Until, now), byText(&p), cutText(p.Reason))
	}
	return t.Flush()
}

// byText writes by whom a pause is.
func byText(p *client.Pause) string {
	switch {
	case p.Who != "":
		return cutText(p.Who)
	case p.Status > 0:
		return fmt.Sprintf("%s, status %d", p.By, p.Status)
	}
	return p.By
}

func newPause() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause UPSTREAM (--for DURATION | --until INSTANT) --reason TEXT",
		Short: "Pause an upstream, one of its limits, or one key of a limit",
		Args:  exactly("UPSTREAM"), ValidArgsFunction: completeFirst(completeUpstreams),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			in := client.PauseRequest{Upstream: args[0], Reason: reasonOf(cmd)}
			in.Limit, _ = flags.GetString("limit")
			in.Key, _ = flags.GetString("key")
			in.For, _ = flags.GetString("for")
			until, _ := flags.GetString("until")
			if until != "" {
				at, err := time.Parse(time.RFC3339, until)
				if err != nil {
					return usage("--until is %q, must be an instant of RFC 3339 such as 2026-11-21T09:00:00Z", until)
				}
				in.Until = at
			}
			if (in.For == "") == (until == "") {
				return usage("give the end of the pause, either as --for 10m or as --until 2026-11-21T09:00:00Z")
			}
			if in.Reason == "" {
				return usage("--reason is missing; others will want to know why, as in --reason 'maintenance of the bank'")
			}
			body, err := callAPI(cmd, http.MethodPost, "/v1/pauses", nil, in)
			if err != nil {
				return err
			}
			p, err := decode[client.Pause](body)
			if err != nil {
				return err
			}
			return printout{body: body, names: []string{p.Id}, table: func(w io.Writer) error { return writePauses(w, []client.Pause{*p}, time.Now()) }}.print(cmd)
		},
	}
	targetFlags(cmd)
	cmd.Flags().String("for", "", "`duration`, such as 10m")
	cmd.Flags().String("until", "", "`instant` of RFC 3339")
	reasonFlag(cmd, "kept with the pause and in the audit")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func newResume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume (UPSTREAM | PAUSE)",
		Short: "End a pause: that of an id of throttler pauses, or of an upstream, limit or key",
		Args:  exactly("UPSTREAM"), ValidArgsFunction: completeFirst(completePauses),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, all, err := read[client.Pauses](cmd, "/v1/pauses", nil)
			if err != nil {
				return err
			}
			limit, _ := cmd.Flags().GetString("limit")
			key, _ := cmd.Flags().GetString("key")
			if limit == scheduler.ConcurrencyLimit { // its pause is that of the upstream
				limit = ""
			}
			for _, p := range all.Pauses {
				if p.Id != args[0] && (p.Upstream != args[0] || p.Limit != limit || p.Key != key) {
					continue
				}
				query := url.Values{}
				if reason := reasonOf(cmd); reason != "" {
					query.Set("reason", reason)
				}
				if _, err := callAPI(cmd, http.MethodDelete, "/v1/pauses/"+url.PathEscape(p.Id), query, nil); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "the pause of %s has ended\n", pausedThing(&p))
				return err
			}
			return coded(exitNotFound, fmt.Errorf("%s is not paused; throttler pauses lists the pauses", pausedThing(&client.Pause{Upstream: args[0], Limit: limit, Key: key})))
		},
	}
	targetFlags(cmd)
	reasonFlag(cmd, "kept in the audit")
	addrFlag(cmd)
	return cmd
}

// targetFlags adds the flags of a limit and its key.
func targetFlags(cmd *cobra.Command) {
	cmd.Flags().String("limit", "", "only this `limit`")
	cmd.Flags().String("key", "", "only this `key` of the limit")
	completeTargets(cmd)
}

func pausedThing(p *client.Pause) string {
	switch {
	case p.Limit == "":
		return "upstream " + p.Upstream
	case p.Key == "":
		return fmt.Sprintf("limit %s of upstream %s", p.Limit, p.Upstream)
	}
	return fmt.Sprintf("key %q of limit %s of upstream %s", p.Key, p.Limit, p.Upstream)
}
