package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newFind() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "find NUMBER",
		Short: "Find a payment by its business number, call id, idempotency key or limit key",
		Long: `Find the calls of a payment: by a business number such as an order or refund number, by the
id of a call, its idempotency key, or the key of a limit, each written in full. Finished
calls are found for keep_calls. The newest comes first.

The exit code is 3 if there is none.`,
		Example: `  throttler find R-88123
  throttler find R-88123 -o json | jq '.calls[0].state'`,
		Args: exactly("NUMBER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage("NUMBER is empty; write: throttler find NUMBER")
			}
			body, page, err := firstCalls(cmd, url.Values{"q": args, "page_size": {"20"}})
			if err != nil {
				return err
			}
			if len(page.Calls) == 0 {
				return coded(exitNotFound, fmt.Errorf("no call has the number, id, idempotency key or limit key %q; finished calls are kept for keep_calls", args[0]))
			}
			return printout{
				body: body, items: "calls", names: idsOf(page),
				table: func(w io.Writer) error { return writeFound(w, args[0], page, time.Now()) },
			}.print(cmd)
		},
	}
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func idsOf(page *client.Calls) (ids []string) {
	for _, c := range page.Calls {
		ids = append(ids, c.Id)
	}
	return ids
}

// writeFound writes each call as a sentence, and then all of them as a table.
func writeFound(w io.Writer, number string, page *client.Calls, now time.Time) error {
	for i := range page.Calls {
		fmt.Fprintln(w, sentence(number, &page.Calls[i], now))
	}
	fmt.Fprintln(w)
	return writePage(w, page, now)
}

// sentence says how a call stands, in words for a support desk.
func sentence(number string, c *client.CallSummary, now time.Time) string {
	subject := subjectOf(number, c)
	clock := func(i time.Time) string { return clockText(i, now) }
	sent := ""
	if c.LastAttempt != nil {
		sent = clock(c.LastAttempt.SentAt)
	}
	switch c.State {
	case client.StateWaiting:
		switch {
		case c.Eta.IsZero():
			return fmt.Sprintf("%s waits to be sent to %s; when it goes is not known yet. If its deadline %s comes first, it ends then and is not sent.", subject, c.Upstream, clock(c.Deadline))
		case !c.Eta.After(now):
			return fmt.Sprintf("%s is about to be sent to %s.", subject, c.Upstream)
		case isLate(c.Eta, c.Deadline):
			return fmt.Sprintf("%s has no slot before its deadline %s: unless that changes, it ends then and is not sent to %s.", subject, clock(c.Deadline), c.Upstream)
		}
		return fmt.Sprintf("%s waits, and goes to %s about %s; it is not lost.", subject, c.Upstream, strings.TrimPrefix(strings.TrimPrefix(clock(c.Eta), "at "), "on "))
	case client.StateSending:
		return fmt.Sprintf("%s was sent to %s %s; the answer is not there yet.", subject, c.Upstream, sent)
	case client.StateDone:
		return fmt.Sprintf("%s was executed by %s; that was known %s.", subject, c.Upstream, clock(c.FinishedAt))
	case client.StateFailed:
		return fmt.Sprintf("%s was refused by %s for good %s; nothing more is sent.", subject, c.Upstream, clock(c.FinishedAt))
	case client.StateUnknown:
		next := "A person has to decide"
		if c.Unknown != nil && c.Unknown.Next == "query" {
			next = "The sidecar asks the platform"
		}
		return fmt.Sprintf("%s was sent to %s %s, and there is no clear answer: it may have been executed. %s. It is not lost, and is not sent twice.", subject, c.Upstream, sent, next)
	case client.StateExpired:
		return fmt.Sprintf("%s was not sent to %s before its deadline; nothing was executed.", subject, c.Upstream)
	case client.StateExhausted:
		return fmt.Sprintf("%s was not executed by %s, and its attempts are used up (%s).", subject, c.Upstream, clock(c.FinishedAt))
	}
	return fmt.Sprintf("%s was cancelled %s; nothing more is sent.", subject, clock(c.FinishedAt))
}

// subjectOf names a call by its numbers, the one that was looked for first.
func subjectOf(number string, c *client.CallSummary) string {
	names := slices.Sorted(maps.Keys(c.Numbers))
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case c.Numbers[a] == number && c.Numbers[b] != number:
			return -1
		case c.Numbers[b] == number && c.Numbers[a] != number:
			return 1
		}
		return 0
	})
	if len(names) == 0 {
		return "Call " + c.Id
	}
	text := capital(names[0]) + " " + plain(c.Numbers[names[0]])
	for i, name := range names[1:] {
		joined := " of "
		if i > 0 {
			joined = ", "
		}
		text += joined + name + " " + plain(c.Numbers[name])
	}
	return text
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// plain writes a value of a request; one with other than plain characters is quoted.
func plain(s string) string {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return fmt.Sprintf("%+q", s)
		}
	}
	return s
}

// clockText writes an instant of today as a clock shows it, and others with their date.
func clockText(at, now time.Time) string {
	if at.Local().Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return "at " + at.Local().Format("15:04:05")
	}
	return "on " + at.Local().Format(time.DateTime)
}
