package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newCalls() *cobra.Command {
	cmd := &cobra.Command{Use: "calls", Short: "Show the calls of a running sidecar, why they wait, and decide about them"}
	addrFlag(cmd)
	return group(cmd, newCallsGet(), newCallsList(), newCallsRefused(), newCallsWatch(), newCallsSubmit(), newCallsCancel(), newCallsEdit(), newCallsAsk(), newCallsResolve(), newCallsRetry())
}

func newCallsGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show a call: its state, the limit and key that it waits for, until when, how many are ahead",
		Args:  exactly("ID"), ValidArgsFunction: callIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if with, _ := cmd.Flags().GetBool("response"); with {
				query.Set("include", "response")
			}
			body, call, err := read[client.Call](cmd, callPath(args[0], ""), query)
			if err != nil {
				return err
			}
			return printCall(cmd, body, call)
		},
	}
	cmd.Flags().Bool("response", false, "with the platform's answer, in JSON and YAML")
	outputFlag(cmd)
	return cmd
}

func printCall(cmd *cobra.Command, body []byte, call *client.Call) error {
	return printout{body: body, names: []string{call.Id}, table: func(w io.Writer) error { return writeCall(w, call, time.Now()) }}.print(cmd)
}

// listFlags are the flags of calls list that are parameters of the API by the same names, with
// underscores.
var listFlags = []struct{ name, use string }{
	{"upstream", "only calls of this `upstream`"},
	{"number", "only calls with this business `number`"},
	{"idempotency-key", "only the call with this idempotency `key`"},
	{"outcome", "only calls with this `outcome` so far"},
	{"limit", "only calls that take permits of this `limit`"},
	{"key", "only calls that take permits of this `key` of a limit"},
	{"flow", "only calls of this `flow`"},
	{"origin", "only calls that came on this `way`: data, admin, embedded, query or webhook"},
	{"submitted-by", "only calls that this `caller` has submitted"},
	{"path-prefix", "only calls whose path begins with this `text`"},
	{"accepted-after", "only calls that were accepted at this `instant` (RFC 3339) or later"},
	{"accepted-before", "only calls that were accepted before this `instant`"},
	{"finished-after", "only calls that finished at this `instant` or later"},
	{"finished-before", "only calls that finished before this `instant`"},
	{"cursor", "next `page`, as the page before says"},
}

func newCallsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List calls, the newest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := listQuery(cmd)
			if err != nil {
				return err
			}
			body, page, err := firstCalls(cmd, query)
			if err != nil {
				return err
			}
			return printout{body: body, items: "calls", names: idsOf(page), table: func(w io.Writer) error { return writePage(w, page, time.Now()) }}.print(cmd)
		},
	}
	for _, f := range listFlags {
		cmd.Flags().String(f.name, "", f.use)
	}
	cmd.Flags().StringSlice("state", nil, "only calls in these `states`")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"waiting", "sending", "done", "failed", "unknown", "expired", "exhausted", "cancelled"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions([]string{"done", "failed", "not_executed", "unknown"}, cobra.ShellCompDirectiveNoFileComp))
	completeTargets(cmd)
	cmd.Flags().Bool("needs-person", false, "only calls of unknown outcome that no query decides")
	cmd.Flags().Bool("oldest", false, "the oldest first")
	cmd.Flags().Int("page-size", 100, "how many, at most")
	outputFlag(cmd)
	return cmd
}

// listQuery returns the parameters of a list.
func listQuery(cmd *cobra.Command) (url.Values, error) {
	flags := cmd.Flags()
	var names []string
	for _, f := range listFlags {
		names = append(names, f.name)
	}
	query, err := pageQuery(flags, names...)
	if err != nil {
		return nil, err
	}
	states, _ := flags.GetStringSlice("state")
	for _, s := range states {
		query.Add("state", s)
	}
	if needs, _ := flags.GetBool("needs-person"); needs {
		query.Set("needs", "person")
	}
	if oldest, _ := flags.GetBool("oldest"); oldest {
		query.Set("order", "oldest")
	}
	return query, nil
}

// pageQuery returns the parameters of a page of a list by flags: those of some names, and the size.
func pageQuery(flags *pflag.FlagSet, names ...string) (url.Values, error) {
	query := url.Values{}
	for _, name := range names {
		v, _ := flags.GetString(name)
		if v == "" && flags.Changed(name) { // such as an unset variable of a script
			return nil, usage("--%s is empty, and would choose all; leave it out, or give it a value", name)
		}
		if v != "" {
			query.Set(strings.ReplaceAll(name, "-", "_"), v)
		}
	}
	size, _ := flags.GetInt("page-size")
	query.Set("page_size", strconv.Itoa(size))
	return query, nil
}

// writeNext writes the flag that shows the next page of a list, if there is one.
func writeNext(w io.Writer, cursor string) {
	if cursor != "" {
		fmt.Fprintf(w, "more: --cursor %s\n", cursor)
	}
}

func newCallsWatch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [ID]",
		Short: "Follow the events of all calls, or of one until it has finished",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: callIDs(1, "waiting", "sending"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := formOf(cmd)
			if err != nil {
				return err
			}
			query := url.Values{}
			if v, _ := cmd.Flags().GetString("upstream"); v != "" {
				query.Set("upstream", v)
			}
			if len(args) > 0 {
				query.Set("call", args[0])
			}
			return watch(cmd, query, form != "table")
		},
	}
	outputFlag(cmd)
	cmd.Flags().String("upstream", "", "only calls of this upstream")
	completeTargets(cmd)
	return cmd
}

// errFinished ends a watch of one call.
var errFinished = errors.New("the call has finished")

func watch(cmd *cobra.Command, query url.Values, asJSON bool) error {
	out := cmd.OutOrStdout()
	ctx, stop := interruptible(cmd)
	defer stop()
	err := subscribe(ctx, cmd, query, func(ev sse.Event) error {
		var e client.Event
		switch {
		case ev.Type == client.EventLost:
			fmt.Fprintf(cmd.ErrOrStderr(), "throttler: events were lost: %s\n", ev.Data)
			return nil
		case json.Unmarshal([]byte(ev.Data), &e) != nil:
			return fmt.Errorf("the admin API's event %q cannot be read", ev.Type)
		case asJSON:
			fmt.Fprintln(out, ev.Data)
		default:
			fmt.Fprintln(out, eventText(&e))
		}
		if query.Has("call") && e.State.Finished() {
			return errFinished
		}
		return nil
	})
	if errors.Is(err, errFinished) {
		return nil
	}
	return err
}
