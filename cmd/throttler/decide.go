package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

// Commands that change calls. Each says what it will do, and asks.

func newCallsCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel (ID... | --upstream NAME ...)",
		Short: "Take back calls that wait: those of some ids, or all of an upstream, limit, key, flow or number",
		Long: `Take back calls that wait: those of some ids, or all that match the flags, 1,000 at a time.
Those that are being sent meanwhile are told, and stay. --dry-run only counts.`,
		ValidArgsFunction: callIDs(maxCompleted, "waiting"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			filter, err := bulkFilter(cmd, ids, "waiting")
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				return bulk(cmd, client.Bulk{Action: "cancel", Filter: filter, Reason: reasonOf(cmd)})
			}
			if err := confirm(cmd, "%s will be taken back", counted(len(ids), "call")); err != nil {
				return err
			}
			return eachCall(cmd, ids, func(id string) ([]byte, error) {
				return callAPI(cmd, http.MethodPost, callPath(id, "cancel"), nil, client.Cancellation{Reason: reasonOf(cmd)})
			})
		},
	}
	bulkFlags(cmd)
	return cmd
}

func newCallsEdit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit ID",
		Short: "Change the priority, not_before or deadline of a submitted call that waits",
		Args:  exactly("ID"), ValidArgsFunction: callIDs(1, "waiting"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := client.Edit{Reason: reasonOf(cmd)}
			if cmd.Flags().Changed("priority") {
				priority, _ := cmd.Flags().GetInt("priority")
				in.Priority = &priority
			}
			var err error
			if in.NotBefore, err = instantFlag(cmd, "not-before"); err != nil {
				return err
			}
			if in.Deadline, err = instantFlag(cmd, "deadline"); err != nil {
				return err
			}
			if in.Priority == nil && in.NotBefore.IsZero() && in.Deadline.IsZero() {
				return usage("nothing is to be changed; give --priority, --not-before or --deadline")
			}
			return eachCall(cmd, args, func(id string) ([]byte, error) {
				return callAPI(cmd, http.MethodPatch, callPath(id, ""), nil, in)
			})
		},
	}
	cmd.Flags().Int("priority", 0, "`number` from -100 to 100; higher goes first")
	cmd.Flags().String("not-before", "", "earliest `instant` (RFC 3339) at which it is sent")
	cmd.Flags().String("deadline", "", "latest `instant` (RFC 3339) at which it is sent")
	reasonFlag(cmd, "kept in the audit")
	outputFlag(cmd)
	return cmd
}

func newCallsAsk() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ask (ID... | --upstream NAME ...)",
		Short: "Ask the platform now about calls of unknown outcome",
		Long: `Ask the platform now about calls of unknown outcome, by the query that the configuration
or the preset has for them (resolve). The query counts under the upstream's limits. Its
answer decides the call, or leaves it unknown; nothing is sent twice.`,
		ValidArgsFunction: callIDs(maxCompleted, "unknown"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			filter, err := bulkFilter(cmd, ids, "unknown")
			if err != nil {
				return err
			}
			if len(ids) > 0 {
				return eachCall(cmd, ids, func(id string) ([]byte, error) {
					return callAPI(cmd, http.MethodPost, callPath(id, "ask"), nil, client.Ask{Reason: reasonOf(cmd)})
				})
			}
			return bulk(cmd, client.Bulk{Action: "ask", Filter: filter, Reason: reasonOf(cmd)})
		},
	}
	bulkFlags(cmd)
	return cmd
}

func newCallsResolve() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve ID --as done|failed|not_executed --reason TEXT",
		Short: "Record what the platform says about a call of unknown outcome",
		Long: `Record what the platform says about a call of unknown outcome: done or failed end it,
not_executed sends it again. Look it up at the platform first: a bill, the merchant
console, or throttler calls ask.

The decision is about the last attempt as it is shown. If the call has been sent again
since, it is refused (exit code 4), and shows what has changed. With --yes give the
attempt that you have seen.`,
		Args: exactly("ID"), ValidArgsFunction: callIDs(1, "unknown"),
		RunE: func(cmd *cobra.Command, args []string) error {
			as, _ := cmd.Flags().GetString("as")
			then, known := map[string]string{
				"done": "ends as done, and nothing more is sent", "failed": "ends as failed, and nothing more is sent", "not_executed": "is sent again",
			}[as]
			if !known {
				return usage("--as is %q, must be done, failed or not_executed", as)
			}
			attempt, err := shownAttempt(cmd, args[0], then)
			if err != nil {
				return err
			}
			return eachCall(cmd, args, func(id string) ([]byte, error) {
				return callAPI(cmd, http.MethodPost, callPath(id, "resolve"), nil, client.Resolution{Outcome: client.Outcome(as), Attempt: attempt, Reason: reasonOf(cmd)})
			})
		},
	}
	cmd.Flags().String("as", "", "`outcome` that the platform tells: done, failed or not_executed")
	cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions([]string{"done", "failed", "not_executed"}, cobra.ShellCompDirectiveNoFileComp))
	decisionFlags(cmd)
	return cmd
}

func newCallsRetry() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry ID --reason TEXT",
		Short: "Send a call of unknown outcome again without knowing whether it was executed",
		Long: `Send a call of unknown outcome again without knowing whether it was executed. Where the
platform recognises the repeat that is safe. Elsewhere the call may be executed twice, and
is refused (exit code 4) without --accept-duplicate.`,
		Args: exactly("ID"), ValidArgsFunction: callIDs(1, "unknown"),
		RunE: func(cmd *cobra.Command, args []string) error {
			accept, _ := cmd.Flags().GetBool("accept-duplicate")
			then := "is sent again if the platform recognises the repeat"
			if accept {
				then = "is sent again, and MAY BE EXECUTED TWICE"
			}
			attempt, err := shownAttempt(cmd, args[0], then)
			if err != nil {
				return err
			}
			return eachCall(cmd, args, func(id string) ([]byte, error) {
				return callAPI(cmd, http.MethodPost, callPath(id, "retry"), nil, client.Retry{Attempt: attempt, Reason: reasonOf(cmd), AcceptDuplicate: accept})
			})
		},
	}
	cmd.Flags().Bool("accept-duplicate", false, "admit that the call may be executed twice")
	decisionFlags(cmd)
	return cmd
}

// decisionFlags adds the flags of a decision about an unknown call.
func decisionFlags(cmd *cobra.Command) {
	cmd.Flags().Int("attempt", 0, "`number` of the last attempt that you have seen; needed with --yes")
	reasonFlag(cmd, "where you have seen it; kept with the call and in the audit")
	confirmFlag(cmd)
	outputFlag(cmd)
}

// shownAttempt shows a call, asks whether it should be decided, and returns the attempt that was shown,
// or that of --attempt.
func shownAttempt(cmd *cobra.Command, id, then string) (attempt int, err error) {
	if reasonOf(cmd) == "" {
		return 0, usage("--reason is missing; say where you have seen it, such as --reason 'bill of 22 November'")
	}
	attempt, _ = cmd.Flags().GetInt("attempt")
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		if attempt < 1 {
			return 0, usage("--attempt is missing; with --yes give the number of the last attempt that you have seen (throttler calls get %s)", id)
		}
		return attempt, nil
	}
	_, call, err := read[client.Call](cmd, callPath(id, ""), nil)
	if err != nil {
		return 0, err
	}
	last := lastOf(call)
	if call.State != client.StateUnknown || last == nil {
		return 0, coded(exitRefused, fmt.Errorf("call %s is %s; only a call of unknown outcome can be decided", call.Id, call.State))
	}
	if attempt > 0 && attempt != last.N {
		return 0, coded(exitRefused, fmt.Errorf("call %s has been sent again since: its last attempt is %d, not %d; look it up and decide then", call.Id, last.N, attempt))
	}
	if err := writeCall(cmd.ErrOrStderr(), call, time.Now()); err != nil {
		return 0, err
	}
	return last.N, confirm(cmd, "The call %s", then)
}

// eachCall changes calls one by one, and writes each as it is then. Those that are refused are
// told on standard error; the exit code is that of the first.
func eachCall(cmd *cobra.Command, ids []string, do func(id string) ([]byte, error)) (failed error) {
	for _, id := range ids {
		body, err := do(id)
		if err != nil && len(ids) == 1 {
			return err
		}
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "throttler: %s: %v\n", id, err)
			if failed == nil {
				failed = coded(exitCode(err), fmt.Errorf("not all of %d calls were changed", len(ids)))
			}
			continue
		}
		call, err := decode[client.Call](body)
		if err != nil {
			return err
		}
		if err := printCall(cmd, body, call); err != nil {
			return err
		}
	}
	return failed
}

// callPath returns the path of a call, or of an action on it.
func callPath(id, action string) string {
	path := "/v1/calls/" + url.PathEscape(id)
	if action != "" {
		path += "/" + action
	}
	return path
}

func reasonFlag(cmd *cobra.Command, use string) {
	cmd.Flags().String("reason", "", "`text`: "+use)
}

func reasonOf(cmd *cobra.Command) string {
	reason, _ := cmd.Flags().GetString("reason")
	return strings.TrimSpace(reason)
}

// counted writes a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// lastOf returns the last attempt of a call, nil if there was none.
func lastOf(c *client.Call) *client.Attempt {
	if len(c.Attempts) == 0 {
		return nil
	}
	return &c.Attempts[len(c.Attempts)-1]
}
