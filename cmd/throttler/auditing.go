package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newAudit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List the changes that people and programs have made, the newest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := pageQuery(cmd.Flags(), "actor", "action", "call", "from", "to", "cursor")
			if err != nil {
				return err
			}
			body, log, err := read[client.AuditLog](cmd, "/v1/audit", query)
			if err != nil {
				return err
			}
			return printout{body: body, items: "records", names: nil, table: func(w io.Writer) error { return writeAudit(w, log, time.Now()) }}.print(cmd)
		},
	}
	cmd.Flags().String("actor", "", "only changes by this `name`")
	cmd.Flags().String("action", "", "only this `action`, such as resolve")
	cmd.Flags().String("call", "", "only changes of the call with this `id`")
	cmd.Flags().String("from", "", "only changes since this `instant` (RFC 3339)")
	cmd.Flags().String("to", "", "only changes before this `instant` (RFC 3339)")
	cmd.Flags().String("cursor", "", "next `page`, as the page before says")
	cmd.Flags().Int("page-size", 100, "the most changes of a page")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func writeAudit(w io.Writer, log *client.AuditLog, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "AT\tACTOR\tROLE\tVIA\tACTION\tOF\tREASON\tBEFORE\tAFTER")
	for _, r := range log.Records {
		of := r.Call
		if of == "" && r.Upstream != "" {
			of = pausedThing(&client.Pause{Upstream: r.Upstream, Limit: r.Limit, Key: r.Key})
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", instantText(r.At, now), r.Actor, r.Role, r.Via, r.Action, of, cutText(r.Reason), cutText(r.Before), cutText(r.After))
	}
	err := t.Flush()
	writeNext(w, log.Next)
	return err
}

// cutText writes a text of a person or of an error for a table, cut.
func cutText(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		text = string(r[:most-1]) + "…"
	}
	return shown(text)
}

// shown writes a text of a person or of an error for a terminal.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '�'
	}, text)
}

func newReload() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Let the sidecar read its configuration file again, and show the changes",
		Long: `Let the sidecar read its configuration file again, and show the changes. With a fault in the
file everything stays as it is, and the exit code is 7. --dry-run only compares.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
				query.Set("dry_run", "true")
			}
			if file := cmd.Flags().Lookup("file"); file.Changed {
				query.Set("file", file.Value.String())
			}
			body, err := callAPI(cmd, http.MethodPost, "/v1/config/reload", query, nil)
			if err == nil {
				_, err = printChanges(cmd, body)
			}
			return err
		},
	}
	cmd.Flags().Bool("dry-run", false, "check and compare the file only")
	cmd.Flags().String("file", "", "refuse another file than that with this `hash`: file_sha256 of config diff -o json")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func newConfigDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the file of a running sidecar with the configuration in force",
		Long: `Compare the configuration file of a running sidecar, as it is now, with the configuration in
force. The exit code is 1 if they differ, and 7 if the file has faults.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := callAPI(cmd, http.MethodGet, "/v1/config/diff", nil, nil)
			if err != nil {
				return err
			}
			changes, err := printChanges(cmd, body)
			if err == nil && len(changes) > 0 {
				err = &codedError{errSilent, exitFailed}
			}
			return err
		},
	}
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

// printChanges writes the changes of an answer, and returns them.
func printChanges(cmd *cobra.Command, body []byte) ([]client.Change, error) {
	r, err := decode[client.Reload](body)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range r.Changes {
		names = append(names, c.Path)
	}
	return r.Changes, printout{body: body, items: "changes", names: names, table: func(w io.Writer) error { return writeChanges(w, r) }}.print(cmd)
}

func writeChanges(w io.Writer, r *client.Reload) error {
	if len(r.Changes) == 0 {
		_, err := fmt.Fprintln(w, "no change")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tCHANGE\tBEFORE\tAFTER\t")
	for _, c := range r.Changes {
		before, after, restart := oneLine(c.Before), oneLine(c.After), ""
		if c.Hidden {
			before, after = "(hidden)", "(hidden)"
		}
		if c.Restart {
			restart = "stays as it is until a restart"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Path, c.Kind, before, after, restart)
	}
	return t.Flush()
}
