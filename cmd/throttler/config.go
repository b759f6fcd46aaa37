package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

func newConfig() *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "Show the configuration that is in force, and where each value comes from",
	}, newConfigShow(), newConfigDiff())
}

func newConfigShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [-c FILE]",
		Short: "Show each value with its source: a line of the file, a variable, a flag, a preset or the default",
		Long: `Show each value of a configuration with its source: a line of the file, an environment
variable, a flag, a line of a preset, or the default. Values that may be secrets are not
shown, and of URLs only the scheme and the host.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantsJSON(cmd)
			if err != nil {
				return err
			}
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(cfg.Settings())
			}
			return writeSettings(cmd.OutOrStdout(), cfg.Settings())
		},
	}
	configFlag(cmd)
	config.AddFlags(cmd.Flags())
	outputFlag(cmd)
	return cmd
}

func writeSettings(w io.Writer, settings []config.Setting) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tSOURCE\tVALUE")
	for _, s := range settings {
		value := oneLine(s.Value)
		if s.Hidden {
			value = "(set, not shown)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Path, s.Source, value)
	}
	return table.Flush()
}
