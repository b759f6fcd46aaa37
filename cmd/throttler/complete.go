package main

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

// Shells complete the names and ids of a running sidecar. Without a sidecar they complete nothing.

// maxCompleted is how many ids of calls a shell gets at most: the newest.
const maxCompleted = 50

// completeTargets completes the flags of a command that name upstreams and limits.
func completeTargets(cmd *cobra.Command) {
	if cmd.Flags().Lookup("upstream") != nil {
		cmd.RegisterFlagCompletionFunc("upstream", completeUpstreams)
	}
	if cmd.Flags().Lookup("limit") != nil {
		cmd.RegisterFlagCompletionFunc("limit", completeLimits)
	}
}

func completeUpstreams(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, all, err := read[client.Upstreams](cmd, "/v1/upstreams", nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return upstreamNames(all.Upstreams), cobra.ShellCompDirectiveNoFileComp
}

// completeFirst completes the first argument by f, and no other.
func completeFirst(f cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f(cmd, args, text)
	}
}

// completeLimits completes the names of limits, of the upstream that the command line names.
func completeLimits(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	query := url.Values{}
	if upstream, _ := cmd.Flags().GetString("upstream"); upstream != "" {
		query.Set("upstream", upstream)
	} else if len(args) > 0 {
		query.Set("upstream", args[0])
	}
	_, all, err := read[client.Limits](cmd, "/v1/limits", query)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, l := range all.Limits {
		names = append(names, l.Limit)
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completePauses completes the ids of pauses.
func completePauses(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, all, err := read[client.Pauses](cmd, "/v1/pauses", nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, p := range all.Pauses {
		ids = append(ids, cobra.CompletionWithDesc(p.Id, pausedThing(&p)))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// callIDs completes up to most ids of the newest calls in some states; without states, in all.
func callIDs(most int, states ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		query := url.Values{"state": states, "page_size": {strconv.Itoa(maxCompleted)}}
		_, page, err := firstCalls(cmd, query)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var ids []string
		for _, c := range page.Calls {
			if !slices.Contains(args, c.Id) {
				ids = append(ids, cobra.CompletionWithDesc(c.Id, string(c.State)+" "+c.Upstream+" "+plain(c.Method)+" "+plain(c.Path)))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
