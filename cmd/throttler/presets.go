package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

func newPresets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "presets",
		Short: "Show the presets for payment platforms",
		Long: `Show the presets for payment platforms: outcome rules, safe retries, the shape of
refusals. A preset has the defaults of an upstream that names it; each line of it can
be overridden in the configuration.`,
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the presets",
		Args:  exactly(),
		Run: func(cmd *cobra.Command, _ []string) {
			for _, name := range config.Presets() {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
		},
	}
	show := &cobra.Command{
		Use:   "show NAME",
		Short: "Print a preset as YAML",
		Args:  exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := config.Preset(args[0])
			if err != nil {
				return fmt.Errorf("preset %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cases := &cobra.Command{
		Use:   "cases NAME",
		Short: "Print the cases of a preset as YAML, for throttler test",
		Args:  exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := config.PresetCases(args[0])
			if err != nil {
				return fmt.Errorf("preset %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	return group(cmd, list, show, cases)
}
