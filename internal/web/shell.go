package web

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// Commands of the CLI that show or do the same as a page, for a shell. A part that the person has
// still to write is in capitals.

// listFlags are the parameters of a list of calls for which calls list has a flag.
var listFlags = []string{"accepted_after", "accepted_before", "cursor", "finished_after", "finished_before", "flow", "key", "limit", "needs", "number", "order", "origin", "outcome", "page_size", "path_prefix", "state", "submitted_by", "upstream"}

// same returns a command with the flags of a query. It is empty if the command has no flag for a
// parameter, or would take only one of its values.
func same(command string, query url.Values, names ...string) string {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(names, name) || len(query[name]) > 1 && name != "state" {
			return ""
		}
		for _, value := range query[name] {
			switch {
			case name == "needs" && value == "person":
				command += " --needs-person"
			case name == "order" && value == "oldest":
				command += " --oldest"
			case name == "order":
			default:
				command += flag(strings.ReplaceAll(name, "_", "-"), value)
			}
		}
	}
	return command
}

// flag returns a flag with its value, and nothing without one.
func flag(name, value string) string {
	if value == "" {
		return ""
	}
	return " --" + name + " " + quoted(value)
}

// words returns a command with its arguments.
func words(command string, args ...string) string {
	if slices.ContainsFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") }) {
		command += " --"
	}
	for _, arg := range args {
		command += " " + quoted(arg)
	}
	return command
}

// watching returns the command that follows the events of a query. It chooses by upstream and call
// only.
func watching(query url.Values) string {
	command, of := "throttler calls watch", maps.Clone(query)
	calls := of["call"]
	of.Del("call")
	of.Del("page_size")
	if command = same(command, of, "upstream"); command == "" || len(calls) > 1 {
		return ""
	}
	return words(command, calls...)
}

// acting returns the command of an action on a call, about the attempt that the person sees.
func acting(action string, c *api.Call) string {
	command := "throttler calls " + action
	switch last := c.Last(); action {
	case "resolve", "retry":
		if action == "resolve" {
			command += " --as OUTCOME"
		}
		if last != nil {
			command += fmt.Sprintf(" --attempt %d", last.N)
		}
		command += " --reason REASON"
	case "edit":
		command += fmt.Sprintf(" --priority %d", c.Priority)
	}
	return words(command, c.ID)
}

// actingOnMany returns the command of an action on many calls.
func actingOnMany(action string, query url.Values) string {
	command := "throttler calls " + action
	for _, name := range bulkFilters {
		command += flag(name, query.Get(name))
	}
	return words(command+" --reason REASON", query["call"]...)
}

// pausing returns the command of the form of a pause.
func pausing(p *pausePage) string {
	until, reason := flag("for", p.For), flag("reason", p.Reason)
	if until == "" {
		until = " --for 10m"
	}
	if reason == "" {
		reason = " --reason REASON"
	}
	return words("throttler pause"+flag("limit", p.Limit)+flag("key", p.Key)+until+reason, p.Upstream)
}

// quoted returns a text as an argument of a shell. Characters that are not seen, or turn the
// others, have their numbers, as bash and zsh take them.
func quoted(s string) string {
	if strings.ContainsFunc(s, unseen) {
		var b strings.Builder
		for _, r := range s {
			switch {
			case unseen(r) && r > 0xffff:
				fmt.Fprintf(&b, `\U%08x`, r)
			case unseen(r):
				fmt.Fprintf(&b, `\u%04x`, r)
			case r == '\\', r == '\'':
				b.WriteString(`\` + string(r))
			default:
				b.WriteRune(r)
			}
		}
		return "$'" + b.String() + "'"
	}
	if strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@=,+", r))
	}) < 0 && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
