package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what needs a person, and how the upstreams stand",
		Long: `Show what needs a person, and how the upstreams stand: is it the sidecar or the platform,
until when, and can it be left alone?

With --check the answer is one line for a monitoring system, and the exit code is that of
Nagios' plugins: 0 all is well, 1 something is paused or held up, 2 calls wait for a
person, an upstream is down or a limit was exceeded, 3 the sidecar does not answer.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			check, _ := cmd.Flags().GetBool("check")
			s, body, err := readStatus(cmd)
			if check {
				return checkStatus(cmd.OutOrStdout(), s, err)
			}
			if err != nil {
				return err
			}
			return printout{body: body, items: "upstreams", names: upstreamNames(s.upstreams), table: func(w io.Writer) error { return s.write(w, time.Now()) }}.print(cmd)
		},
	}
	cmd.Flags().Bool("check", false, "one line and an exit code, for a monitoring system")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

// A status is what a person looks at first.
type status struct {
	info      *client.Info
	upstreams []client.Upstream
	limits    []client.Limit
	decide    []client.CallSummary // that need a person, the oldest first; a page of them
	more      bool                 // there are more than decide has
}

// readStatus reads a status, and the body of the upstreams.
func readStatus(cmd *cobra.Command) (*status, []byte, error) {
	s := &status{}
	_, info, err := read[client.Info](cmd, "/v1/info", nil)
	if err != nil {
		return nil, nil, err
	}
	body, ups, err := read[client.Upstreams](cmd, "/v1/upstreams", nil)
	if err != nil {
		return nil, nil, err
	}
	_, limits, err := read[client.Limits](cmd, "/v1/limits", nil)
	if err != nil {
		return nil, nil, err
	}
	_, page, err := firstCalls(cmd, url.Values{"needs": {"person"}, "order": {"oldest"}, "page_size": {"100"}})
	if err != nil {
		return nil, nil, err
	}
	s.info, s.upstreams, s.limits, s.decide, s.more = info, ups.Upstreams, limits.Limits, page.Calls, page.Next != ""
	return s, body, nil
}

func upstreamNames(all []client.Upstream) (names []string) {
	for _, u := range all {
		names = append(names, u.Name)
	}
	return names
}

// findings returns what is wrong, the worst first, and the exit code of --check.
func (s *status) findings(now time.Time) (texts []string, code int) {
	add := func(level int, format string, args ...any) {
		texts = append(texts, fmt.Sprintf(format, args...))
		code = max(code, level)
	}
	if n := len(s.decide); n > 0 {
		more := ""
		if s.more {
			more = " or more"
		}
		add(2, "%s%s may have been executed and %s a decision (throttler calls list --needs-person); the oldest is unknown for %s", counted(n, "call"), more, verb(n, "need"), durationText(now.Sub(since(&s.decide[0]))))
	}
	for _, l := range s.limits {
		if l.Audit.Margin < 0 {
			add(2, "limit %s of %s was exceeded: %d of %d in a window", l.Limit, l.Upstream, l.Audit.Most, l.Permits)
		}
	}
	for _, u := range s.upstreams {
		if len(u.Slowed) > 0 {
			slowed := &u.Slowed[0]
			name := u.Name
			if slowed.Limit != "" {
				name += ", limit " + slowed.Limit
			}
			if slowed.Key != "" {
				name += ", key " + plain(slowed.Key)
			}
			if n := len(u.Slowed) - 1; n > 0 {
				name += fmt.Sprintf(" (and %d more)", n)
			}
			add(1, "%s is %s; another program uses the quota, a limit is too high, or the platform counts otherwise, bursts for instance: then write fewer calls per shorter window", name, slowedText(slowed, now))
		}
		switch u.State {
		case "down":
			add(2, "%s is down for %s: %s; %s", u.Name, durationText(now.Sub(u.Since)), u.Reason, waitText(&u))
		case "tripped":
			add(2, "%s has tripped its circuit breaker: %s; %s", u.Name, u.Reason, waitText(&u))
		case "paused":
			add(1, "%s is paused until %s (%s); %s", u.Name, instantText(u.PausedUntil, now), u.Cause, waitText(&u))
		case "removed":
			add(1, "%s is not in the configuration any more; %s", u.Name, waitText(&u))
		default:
			if u.Waiting+u.Unknown >= u.MaxWaiting && u.MaxWaiting > 0 {
				add(1, "%s takes no more calls: %d wait or are unknown, at most %d may", u.Name, u.Waiting+u.Unknown, u.MaxWaiting)
			}
		}
	}
	return texts, code
}

// since returns when a call became unknown.
func since(c *client.CallSummary) time.Time {
	if c.Unknown != nil {
		return c.Unknown.Since
	}
	return c.AcceptedAt
}

func waitText(u *client.Upstream) string {
	if u.Waiting == 0 {
		return "nothing waits"
	}
	text := counted(u.Waiting, "call") + " " + verb(u.Waiting, "wait")
	if u.MayExpire {
		return text + "; any whose deadline comes first ends as expired and is not sent"
	}
	return text + ", none is lost"
}

// verb returns a verb for a number of things.
func verb(n int, plural string) string {
	if n == 1 {
		return plural + "s"
	}
	return plural
}

// checkStatus writes the line of --check; its error has the exit code and no text.
func checkStatus(w io.Writer, s *status, err error) error {
	if err != nil {
		fmt.Fprintf(w, "UNKNOWN: %v\n", err)
		return &codedError{errSilent, 3}
	}
	texts, code := s.findings(time.Now())
	if code == 0 {
		texts = []string{"nothing needs a person"}
	}
	fmt.Fprintf(w, "%s: %s\n", []string{"OK", "WARNING", "CRITICAL"}[code], strings.Join(texts, "; "))
	if code == 0 {
		return nil
	}
	return &codedError{errSilent, code}
}

// errSilent is the error of a command that has told everything on standard output.
var errSilent = errors.New("")

func (s *status) write(w io.Writer, now time.Time) error {
	fmt.Fprintf(w, "throttler %s, up %s, store: %s\n", s.info.Version, durationText(now.Sub(s.info.StartedAt)), s.info.Store)
	texts, _ := s.findings(now)
	for _, t := range texts {
		fmt.Fprintln(w, "!", t)
	}
	if len(texts) == 0 {
		fmt.Fprintln(w, "All quiet: nothing needs a person.")
	}
	fmt.Fprintln(w)
	if err := writeUpstreams(w, s.upstreams, now); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return writeLimitStates(w, s.limits, false, now)
}

func writeUpstreams(w io.Writer, all []client.Upstream, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "UPSTREAM\tSTATE\tWAITING\tSENDING\tUNKNOWN\tLAST ONE GOES")
	for _, u := range all {
		state := u.State
		if !u.PausedUntil.IsZero() {
			state += " until " + instantText(u.PausedUntil, now)
		}
		last := ""
		switch {
		case u.Waiting == 0:
		case u.Eta.IsZero():
			last = "not known"
		default:
			last = instantText(u.Eta, now)
		}
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%d\t%d\t%s\n", u.Name, state, u.Waiting, u.MaxWaiting, u.Sending, u.Unknown, last)
	}
	return t.Flush()
}

// writeLimitStates writes limits as a table, with their keys if those are wanted.
func writeLimitStates(w io.Writer, all []client.Limit, keys bool, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tPERMITS\tKEYS\tOUT\tIN FLIGHT\tAWAITED\tMOST IN A WINDOW\tKEY\tFREE\tNEXT BACK")
	for _, l := range all {
		if l.Builtin && (len(l.Keys) == 0 || l.Keys[0].Free > 0) { // it binds no call
			continue
		}
		first := fmt.Sprintf("%s/%s\t%s\t%d\t%d\t%d\t%d\t%d of %d", l.Upstream, l.Limit, permitsText(&l, now), l.LiveKeys, l.Out, l.InFlight, l.WaitingPermits, l.Audit.Most, l.Permits)
		shown := l.Keys
		if !keys {
			shown = shown[:min(len(shown), 1)] // the busiest
		}
		for i, k := range shown {
			if i > 0 {
				first = "\t\t\t\t\t\t"
			}
			back := ""
			if !k.NextBack.IsZero() {
				back = instantText(k.NextBack, now)
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", first, plain(k.Key), k.Free, back)
		}
		if len(shown) == 0 {
			fmt.Fprintf(t, "%s\t\t\t\n", first)
		}
	}
	return t.Flush()
}

func permitsText(l *client.Limit, now time.Time) string {
	switch l.Kind {
	case "concurrency":
		return fmt.Sprintf("%d at once", l.Permits)
	case "calendar":
		return fmt.Sprintf("%d / %s, resets %s", l.Permits, l.Window, clockText(l.ResetsAt, now))
	}
	return fmt.Sprintf("%d / %v", l.Permits, time.Duration(l.WindowMs)*time.Millisecond)
}

func newUpstreams() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upstreams",
		Short: "List the upstreams with their states",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, all, err := read[client.Upstreams](cmd, "/v1/upstreams", nil)
			if err != nil {
				return err
			}
			return printout{body: body, items: "upstreams", names: upstreamNames(all.Upstreams), table: func(w io.Writer) error { return writeUpstreams(w, all.Upstreams, time.Now()) }}.print(cmd)
		},
	}
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func newLimits() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "List the limits: permits out, awaited, and the most that was ever in a window",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if v, _ := cmd.Flags().GetString("upstream"); v != "" {
				query.Set("upstream", v)
			}
			body, all, err := read[client.Limits](cmd, "/v1/limits", query)
			if err != nil {
				return err
			}
			var names []string
			for _, l := range all.Limits {
				names = append(names, l.Upstream+"/"+l.Limit)
			}
			keys, _ := cmd.Flags().GetBool("keys")
			return printout{body: body, items: "limits", names: names, table: func(w io.Writer) error { return writeLimitStates(w, all.Limits, keys, time.Now()) }}.print(cmd)
		},
	}
	cmd.Flags().String("upstream", "", "only those of this `upstream`")
	completeTargets(cmd)
	cmd.Flags().Bool("keys", false, "show the keys for which most waits, a hundred of each limit at most")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func newReady() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Exit with 0 if the sidecar should get traffic, for probes of images without a shell",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), clientTimeout)
			defer cancel()
			cmd.SetContext(ctx)
			body, err := callAPI(cmd, "GET", "/readyz", url.Values{"verbose": {"true"}}, nil)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(body)
			return err
		},
	}
	addrFlag(cmd)
	return cmd
}
