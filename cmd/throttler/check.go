package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/postgres"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [-c FILE]",
		Short: "Check a configuration, and what it names, and report every fault",
		Long: `Check a configuration and report every fault in it, each with its line.

What the sidecar opens at its start is looked at too: the store and its directory,
keys, certificates and programs of signers; with --ports, the addresses to listen on,
and with --connect, a database: its version, rights, fsync, standbys, clock and replicas.
Nothing is made or changed. A store that a sidecar has open is no fault: its next
configuration can be checked while it runs.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			ports, _ := cmd.Flags().GetBool("ports")
			if faults := surroundings(cfg, ports); len(faults) > 0 {
				return faults
			}
			out := cmd.OutOrStdout()
			if connect, _ := cmd.Flags().GetBool("connect"); connect {
				if err := inspectStore(cmd, cfg); err != nil {
					return err
				}
			}
			for _, w := range cfg.Warnings {
				fmt.Fprintln(out, "warning:", w)
			}
			if err := writeLimits(out, cfg.Scheduler.Upstreams); err != nil {
				return err
			}
			for _, h := range cfg.Hints() {
				fmt.Fprintln(out, "hint:", h)
			}
			return nil
		},
	}
	configFlag(cmd)
	config.AddFlags(cmd.Flags())
	cmd.Flags().Bool("connect", false, "ask the database of the store whether it can be used; nothing is changed there")
	cmd.Flags().Bool("ports", false, "listen on each address for a moment: a sidecar that has them must not run")
	return cmd
}

// inspectStore asks the database of the store, and writes its answers.
func inspectStore(cmd *cobra.Command, cfg *config.Config) error {
	if !cfg.Shared() {
		return usage("--connect is for a store in PostgreSQL, and store is %s", cmp.Or(cfg.Store, "memory"))
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	i, err := cfg.Inspect(ctx)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for _, w := range i.Warnings {
		fmt.Fprintln(out, "warning: store:", w)
	}
	schema := fmt.Sprintf("schema %d", i.Schema)
	switch {
	case i.Schema < i.Latest:
		schema += fmt.Sprintf(", to become %d at the next start", i.Latest)
	case i.Schema > i.Latest:
		schema += fmt.Sprintf(" of a newer program, with which this one works (it makes %d)", i.Latest)
	}
	if i.Standbys >= 0 {
		schema += fmt.Sprintf(", %d synchronous standby(s)", i.Standbys)
	}
	fmt.Fprintf(out, "store: PostgreSQL %s, %s, round trip %v, clock %+v\n", i.Server, schema, i.RoundTrip.Round(10*time.Microsecond), i.Offset.Round(time.Millisecond))
	if i.Schema > 0 {
		fmt.Fprintln(out, "fleet:", fleetText(i))
	}
	return nil
}

// fleetText names the owner of the calls, and the replicas that live.
func fleetText(i *postgres.Inspection) string {
	owner := "no replica has the calls"
	if i.Owner != "" {
		owner = fmt.Sprintf("replica %q has the calls", i.Owner)
	}
	var names []string
	for _, r := range i.Replicas {
		names = append(names, fmt.Sprintf("%q", r.Name))
	}
	return owner + "; alive: " + cmp.Or(strings.Join(names, ", "), "none")
}

// surroundings returns the faults of files, keys and programs that a configuration names.
func surroundings(cfg *config.Config, ports bool) (faults config.Errors) {
	add := func(err error) {
		var f *config.Fault
		if errors.As(err, &f) {
			faults = append(faults, f)
		}
	}
	add(cfg.CheckStore())
	if !ports {
		return faults
	}
	try := func(key, addr string) {
		socket, err := bind(cfg, key, addr)
		add(err)
		if err == nil {
			socket.Close()
		}
	}
	for i, addr := range cfg.Admin {
		try(cfg.AdminKey(i), addr)
	}
	if cfg.Monitor != "" {
		try("monitor", cfg.Monitor)
	}
	if cfg.Fleet.Listen != "" {
		try("fleet.listen", cfg.Fleet.Listen)
	}
	for _, d := range endpoints(cfg) {
		try(d.key(), d.addr(cfg))
	}
	return faults
}

// writeLimits writes the limits as they were understood.
func writeLimits(w io.Writer, upstreams map[string]scheduler.Upstream) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "UPSTREAM\tLIMIT\tCALLS\tPER KEY\tWHEN")
	limits := 0
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		u := upstreams[name]
		if u.Concurrency > 0 || len(u.Limits) == 0 {
			most := cmp.Or(u.Concurrency, scheduler.Defaults().Concurrency)
			fmt.Fprintf(table, "%s\tconcurrency\t%d at once\t-\tall calls\n", name, most)
		}
		for _, l := range u.Limits {
			limits++
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, l.Name, amount(l), cmp.Or(oneLine(l.PerKey), "-"), cmp.Or(oneLine(l.When), "all calls"))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "ok: %d upstream(s), %d limit(s)\n", len(upstreams), limits)
	return err
}

// amount words the calls that a limit allows.
func amount(l scheduler.Limit) string {
	text := ""
	switch c := l.Calendar; {
	case l.Concurrency > 0:
		text = fmt.Sprintf("%d at once", l.Concurrency)
	case c != nil:
		text = fmt.Sprintf("%d in a %s of %s", l.Calls, c.Unit, c.Zone)
	default:
		text = fmt.Sprintf("%d in %v", l.Calls, l.Window)
	}
	if l.Cost != "" && l.Cost != "1" {
		text += ", each costs " + oneLine(l.Cost)
		if l.ActualCost != "" {
			text += " at most"
		}
	}
	return text
}

// oneLine returns an expression without the line breaks that YAML allows in it.
func oneLine(expression string) string { return strings.Join(strings.Fields(expression), " ") }
