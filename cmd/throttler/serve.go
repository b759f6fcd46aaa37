package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [-c FILE]",
		Short: "Run the sidecar",
		Long: `Run the sidecar: a data listener for each upstream and the admin API.

SIGTERM or SIGINT stops it gracefully: no new calls are taken, those in flight
finish, clients that wait for their slot get a refusal, or are passed on to the next of
several replicas. A second one ends it at once.

SIGHUP, POST /v1/config/reload, or a change of the file with --watch loads the file anew:
it is checked first, taken as a whole, and the changes are logged. With a fault in
it everything stays as it is. A file is watched by reading it twice a second, so
links to it are followed.

--restored serves from a copy of the store, such as a backup, which is refused
without it. Calls that waited in the copy, or were being sent, may have been sent
since: they become unknown. Permits that went out since are not known: each limit is
full for one window. Give it for the first start only.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			watch, _ := cmd.Flags().GetBool("watch")
			if watch && configPath(cmd) == standardInput {
				return errors.New("--watch needs a file, and -c - is standard input; write the configuration to a file")
			}
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			restored, _ := cmd.Flags().GetBool("restored")
			ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer release()
			sc := &sidecar{
				cfg: cfg, restored: restored, log: logger(cfg.Log, cmd.ErrOrStderr()),
				load: func() (*config.Config, error) { return load(cmd) },
			}
			if watch {
				sc.watched = configPath(cmd)
			}
			return sc.serve(ctx, release)
		},
	}
	configFlag(cmd)
	config.AddFlags(cmd.Flags())
	cmd.Flags().Bool("restored", false, "serve from a copy of the store: its waiting calls become unknown")
	cmd.Flags().Bool("watch", false, "reload when the configuration file changes")
	return cmd
}

func logger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(c.Level)) // the configuration has been checked
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
