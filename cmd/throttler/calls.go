package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/internal/api"
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
			body, err := newClient(cmd).get(cmd.Context(), "/v1/calls/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
				return err
			}
			var call api.Call
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
			flags, query := cmd.Flags(), url.Values{}
			for _, name := range []string{"upstream", "state", "cursor"} {
				if v, _ := flags.GetString(name); v != "" {
					query.Set(name, v)
				}
			}
			size, _ := flags.GetInt("page-size")
			query.Set("page_size", strconv.Itoa(size))
			body, err := newClient(cmd).get(cmd.Context(), "/v1/calls", query)
			if err != nil {
				return err
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
				return err
			}
			var page api.Calls
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
			query := url.Values{}
			if v, _ := cmd.Flags().GetString("upstream"); v != "" {
				query.Set("upstream", v)
			}
			if len(args) > 0 {
				query.Set("call", args[0])
			}
			return watch(cmd, query, asJSON)
		},
	}
	outputFlag(cmd)
	cmd.Flags().String("upstream", "", "only calls of this upstream")
	return cmd
}

// errFinished ends a watch of one call.
var errFinished = errors.New("the call has finished")

func watch(cmd *cobra.Command, query url.Values, asJSON bool) error {
	out := cmd.OutOrStdout()
	ctx, stop := interruptible(cmd)
	defer stop()
	err := newClient(cmd).subscribe(ctx, query, func(ev sse.Event) error {
		var e api.Event
		switch {
		case ev.Type == api.EventLost:
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
