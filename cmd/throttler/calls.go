package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func newCalls() *cobra.Command {
	cmd := &cobra.Command{Use: "calls", Short: "Show the calls of a running sidecar, and why they wait", Args: cobra.NoArgs}
	adminFlag(cmd)
	cmd.AddCommand(newCallsGet(), newCallsList(), newCallsWatch())
	return cmd
}

// outputFlag adds -o; json is what the admin API says.
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
		return false, fmt.Errorf("--output %q is neither text nor json", form)
	}
}

func newCallsGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show a call: where it stands, which limit and key hold it, until when, how many are ahead",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, err := wantsJSON(cmd)
			if err != nil {
				return err
			}
			body, err := adminOf(cmd).get(cmd.Context(), "/v1/calls/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
				return err
			}
			var call scheduler.Call
			if err := json.Unmarshal(body, &call); err != nil {
				return fmt.Errorf("the admin API's answer is not a call: %w", err)
			}
			return explain(cmd.OutOrStdout(), &call, time.Now())
		},
	}
	outputFlag(cmd)
	return cmd
}

// explain writes for people where a call stands and why.
func explain(w io.Writer, c *scheduler.Call, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("call", "%s", c.ID)
	line("upstream", "%s, priority %d", c.Upstream, c.Priority)
	switch {
	case c.State == scheduler.Waiting:
		line("state", "waiting, accepted %s", when(c.AcceptedAt, now))
	case c.State.Finished():
		line("state", "%s, %s; accepted %s", c.State, when(c.FinishedAt, now), when(c.AcceptedAt, now))
	default:
		line("state", "%s, accepted %s", c.State, when(c.AcceptedAt, now))
	}
	if c.State == scheduler.Waiting {
		line("goes", "%s", goes(c, now))
		if f := c.WaitingFor; f != nil {
			line("held by", "%s", held(f, now))
			if f.Limit != "" {
				line("ahead", "%d permit(s) of it for calls that go before", f.Ahead)
			}
			if f.Next != "" {
				line("next there", "%s", f.Next)
			}
		}
		line("latest", "%s", when(c.Deadline, now))
	}
	for _, a := range c.Attempts {
		line(fmt.Sprintf("attempt %d", a.N), "%s", attempt(&a, now))
	}
	return t.Flush()
}

func goes(c *scheduler.Call, now time.Time) string {
	if !c.ETA.After(now) {
		return "at once"
	}
	return "about " + when(c.ETA, now)
}

func held(f *scheduler.WaitingFor, now time.Time) string {
	until := ", until " + when(f.Until, now)
	what := "limit " + f.Limit
	if f.Key != "" {
		what += fmt.Sprintf(", key %q", f.Key)
	}
	switch {
	case f.Limit == "":
		return "its own time: not before " + when(f.Until, now)
	case f.Paused && f.Limit == scheduler.ConcurrencyLimit:
		return "the upstream, which is paused or down" + until
	case f.Paused:
		return "a pause of " + what + until
	}
	return what + until
}

func attempt(a *scheduler.Attempt, now time.Time) string {
	if a.EndedAt.IsZero() {
		return "sent " + when(a.SentAt, now) + ", no answer yet"
	}
	s := fmt.Sprintf("sent %s, %s after %s", when(a.SentAt, now), a.Outcome, brief(a.EndedAt.Sub(a.SentAt)))
	if a.Status > 0 {
		s += fmt.Sprintf(", status %d", a.Status)
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}

// when writes an instant, with its date if it is on another day, and how far it is from now.
func when(at, now time.Time) string {
	clock := at.Local().Format("15:04:05.000")
	if at.Local().Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
		clock = at.Local().Format(time.DateTime)
	}
	if at.After(now) {
		return fmt.Sprintf("%s (in %s)", clock, brief(at.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", clock, brief(now.Sub(at)))
}

// brief writes a duration with about three digits.
func brief(d time.Duration) string {
	for _, step := range []time.Duration{time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d >= 100*step {
			return d.Round(step).String()
		}
		if d >= step {
			return d.Round(step / 100).String()
		}
	}
	return d.String()
}

func newCallsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List calls, oldest first",
		Args:  cobra.NoArgs,
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
			limit, _ := flags.GetInt("limit")
			query.Set("limit", strconv.Itoa(limit))
			body, err := adminOf(cmd).get(cmd.Context(), "/v1/calls", query)
			if err != nil {
				return err
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
				return err
			}
			var page server.Page
			if err := json.Unmarshal(body, &page); err != nil {
				return fmt.Errorf("the admin API's answer is not a list of calls: %w", err)
			}
			return list(cmd.OutOrStdout(), &page, time.Now())
		},
	}
	outputFlag(cmd)
	cmd.Flags().String("upstream", "", "only calls of this upstream")
	cmd.Flags().String("state", "", "only calls in this state")
	cmd.Flags().String("cursor", "", "begin after the call of this id")
	cmd.Flags().Int("limit", 100, "how many, at most")
	return cmd
}

func list(w io.Writer, p *server.Page, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CALL\tUPSTREAM\tSTATE\tPRIORITY\tACCEPTED\tATTEMPTS\tGOES\tHELD BY")
	for _, c := range p.Calls {
		eta, by := "", ""
		if c.State == scheduler.Waiting {
			if eta = "at once"; c.ETA.After(now) {
				eta = "in " + brief(c.ETA.Sub(now))
			}
			if f := c.WaitingFor; f != nil {
				switch by = f.Limit; {
				case f.Paused && f.Limit == scheduler.ConcurrencyLimit:
					by = "the upstream"
				case f.Key != "":
					by += " " + strconv.Quote(f.Key)
				}
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n", c.ID, c.Upstream, c.State, c.Priority, when(c.AcceptedAt, now), len(c.Attempts), eta, by)
	}
	err := t.Flush()
	if p.Next != "" {
		fmt.Fprintf(w, "more: --cursor %s\n", p.Next)
	}
	return err
}

func newCallsWatch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [ID]",
		Short: "Follow what happens to calls, or to one until it has finished",
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
			one := ""
			if len(args) > 0 {
				one = args[0]
				query.Set("call", one)
			}
			return watch(cmd, query, one, asJSON)
		},
	}
	outputFlag(cmd)
	cmd.Flags().String("upstream", "", "only calls of this upstream")
	return cmd
}

// errSeen ends a watch: the call has ended.
var errSeen = errors.New("seen")

func watch(cmd *cobra.Command, query url.Values, one string, asJSON bool) error {
	out := cmd.OutOrStdout()
	ctx, stop := interruptible(cmd)
	defer stop()
	err := adminOf(cmd).follow(ctx, query, func(ev sse.Event) error {
		var e server.Event
		switch {
		case ev.Type == "lost":
			fmt.Fprintf(cmd.ErrOrStderr(), "throttler: events were lost: %s\n", ev.Data)
			return nil
		case json.Unmarshal([]byte(ev.Data), &e) != nil:
			return fmt.Errorf("the admin API's event %q cannot be read", ev.Type)
		case asJSON:
			fmt.Fprintln(out, ev.Data)
		default:
			fmt.Fprintln(out, happened(&e))
		}
		if one != "" && e.State.Finished() {
			return errSeen
		}
		return nil
	})
	if errors.Is(err, errSeen) {
		return nil
	}
	return err
}

// happened writes an event as a line.
func happened(e *server.Event) string {
	s := fmt.Sprintf("%s  %s  %s  %-8s", e.At.Local().Format("15:04:05.000"), e.Call, e.Upstream, e.Event)
	switch e.Event {
	case "refused":
		s += "  " + string(e.Reason)
	case "state", "accepted", "waiting":
		if e.Event == "state" {
			s += "  " + string(e.State)
		}
		if !e.ETA.IsZero() {
			s += "  goes " + when(e.ETA, e.At)
		}
	case "attempt":
		s += fmt.Sprintf("  %s after %s", e.Attempt.Outcome, brief(e.Attempt.EndedAt.Sub(e.Attempt.SentAt)))
		if e.Attempt.Status > 0 {
			s += fmt.Sprintf(", status %d", e.Attempt.Status)
		}
	case "paused":
		s += fmt.Sprintf("  %s until %s", shut(e), when(e.Until, e.At))
	case "resumed":
		s += "  " + shut(e)
	case "ended":
		s += "  " + string(e.State)
	}
	return s
}

// shut names what a pause shuts.
func shut(e *server.Event) string {
	switch {
	case e.Limit == "":
		return "the upstream"
	case e.Key == "":
		return "limit " + e.Limit
	}
	return fmt.Sprintf("limit %s, key %q", e.Limit, e.Key)
}
