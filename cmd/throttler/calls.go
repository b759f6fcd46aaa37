package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newCalls() *cobra.Command {
	cmd := &cobra.Command{Use: "calls", Short: "Show the calls of a running sidecar, and why they wait"}
	adminFlag(cmd)
	return group(cmd, newCallsGet(), newCallsList(), newCallsWatch())
}

// outputFlag adds -o. Its json is the body of the admin API's response.
func outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "text", "`form` of the output: text or json")
}

// wantsJSON reads -o.
func wantsJSON(cmd *cobra.Command) (bool, error) {
	switch form, _ := cmd.Flags().GetString("output"); form {
	case "text":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, usage("--output %q is neither text nor json", form)
	}
}

func newCallsGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show a call: its state, the limit and key that it waits for, until when, how many are ahead",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := wantsJSON(cmd)
			if err != nil {
				return err
			}
			body, err := read(cmd, func(ctx context.Context, c *client.ClientWithResponses) (*http.Response, error) {
				return c.GetCall(ctx, args[0], nil)
			})
			if err != nil {
				return err
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
				return err
			}
			var call client.Call
			if err := json.Unmarshal(body, &call); err != nil {
				return fmt.Errorf("the admin API's answer is not a call: %w", err)
			}
			return writeCall(cmd.OutOrStdout(), &call, time.Now())
		},
	}
	outputFlag(cmd)
	return cmd
}

func newCallsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List calls, oldest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantsJSON(cmd)
			if err != nil {
				return err
			}
			var params client.ListCallsParams
			params.Upstream, _ = cmd.Flags().GetString("upstream")
			params.Cursor, _ = cmd.Flags().GetString("cursor")
			params.PageSize, _ = cmd.Flags().GetInt("page-size")
			state, _ := cmd.Flags().GetString("state")
			params.State = []client.ListCallsParamsState{client.ListCallsParamsState(state)}
			body, err := read(cmd, func(ctx context.Context, c *client.ClientWithResponses) (*http.Response, error) {
				return c.ListCalls(ctx, &params)
			})
			if err != nil {
				return err
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
				return err
			}
			var page client.Calls
			if err := json.Unmarshal(body, &page); err != nil {
				return fmt.Errorf("the admin API's answer is not a list of calls: %w", err)
			}
			return writePage(cmd.OutOrStdout(), &page, time.Now())
		},
	}
	outputFlag(cmd)
	cmd.Flags().String("upstream", "", "only calls of this upstream")
	cmd.Flags().String("state", "", "only calls in this state")
	cmd.Flags().String("cursor", "", "begin where the page before ended")
	cmd.Flags().Int("page-size", 100, "how many, at most")
	return cmd
}

func newCallsWatch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [ID]",
		Short: "Follow the events of all calls, or of one until it has finished",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := wantsJSON(cmd)
			if err != nil {
				return err
			}
			var params client.FollowEventsParams
			params.Upstream, _ = cmd.Flags().GetString("upstream")
			if len(args) > 0 {
				params.Call = args[0]
			}
			return watch(cmd, params, asJSON)
		},
	}
	outputFlag(cmd)
	cmd.Flags().String("upstream", "", "only calls of this upstream")
	return cmd
}

// errFinished ends a watch of one call.
var errFinished = errors.New("the call has finished")

func watch(cmd *cobra.Command, params client.FollowEventsParams, asJSON bool) error {
	out := cmd.OutOrStdout()
	ctx, stop := interruptible(cmd)
	defer stop()
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	err = subscribe(ctx, c, params, func(ev sse.Event) error {
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
		if params.Call != "" && e.State.Finished() {
			return errFinished
		}
		return nil
	})
	if errors.Is(err, errFinished) {
		return nil
	}
	return err
}
