package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [-c FILE]",
		Short: "Check a configuration and report every fault in it",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, w := range cfg.Warnings {
				fmt.Fprintln(out, "warning:", w)
			}
			limits := 0
			for _, u := range cfg.Scheduler.Upstreams {
				limits += len(u.Limits)
			}
			fmt.Fprintf(out, "ok: %d upstream(s), %d limit(s)\n", len(cfg.Scheduler.Upstreams), limits)
			return nil
		},
	}
	configFlag(cmd)
	return cmd
}
