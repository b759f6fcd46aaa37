package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
	"github.com/seed-30fe103d/throttler/internal/api"
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
		Use:   "show [-c FILE | --running]",
		Short: "Show each value with its source: a line of the file, a variable, a flag, a preset or the default",
		Long: `Show each value of a configuration with its source: a line of the file, an environment
variable, a flag, a line of a preset, or the default. Values that may be secrets are not
shown, and of URLs only the scheme and the host. With --running the configuration is the one
that a running sidecar has in force.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := settings(cmd)
			if err != nil {
				return err
			}
			shown, err := decode[client.Config](body)
			if err != nil {
				return err
			}
			var names []string
			for _, s := range shown.Settings {
				names = append(names, s.Path)
			}
			return printout{body: body, items: "settings", names: names, table: func(w io.Writer) error { return writeSettings(w, shown.Settings) }}.print(cmd)
		},
	}
	configFlag(cmd)
	config.AddFlags(cmd.Flags())
	cmd.Flags().Bool("running", false, "show the configuration of a running sidecar")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

// settings returns the configuration of the command's file, or of a running sidecar, in JSON.
func settings(cmd *cobra.Command) ([]byte, error) {
	if running, _ := cmd.Flags().GetBool("running"); running {
		if cmd.Flags().Changed("config") {
			return nil, usage("--running shows the configuration of a sidecar, and --config names a file; give one of them")
		}
		return callAPI(cmd, http.MethodGet, "/v1/config", nil, nil)
	}
	cfg, err := load(cmd)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(api.Config{Settings: settingsOf(cfg)})
	return append(body, '\n'), err
}

func writeSettings(w io.Writer, settings []client.Setting) error {
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
