package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

func newStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Read, copy or seal the file that keeps calls",
		Long: `Read the file that keeps calls, or copy it, also while the sidecar runs, or seal it.
It is an SQLite file: sqlite3 throttler.db 'SELECT * FROM readable' shows it as well.`,
	}
	return group(cmd,
		storeBackup(), storeSeal(), storeMigrate(),
		storeCommand("check", "Read every record and report damaged ones", storeCheck),
		storeCommand("stats", "Count calls by upstream and state", storeStats),
		storeCommand("export", "Write every call as a line of JSON, with its answer and without its request", storeExport),
	)
}

func storeCommand(name, short string, run func(ctx context.Context, w io.Writer, f *store.File) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " [-c FILE]", Short: short, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return reading(cmd, func(ctx context.Context, f *store.File) error { return run(ctx, cmd.OutOrStdout(), f) })
		},
	}
	configFlag(cmd)
	return cmd
}

// reading runs do with the store of a command's configuration, until the first signal.
func reading(cmd *cobra.Command, do func(ctx context.Context, f *store.File) error) error {
	cfg, err := load(cmd)
	if err != nil {
		return err
	}
	if cfg.Store == "" {
		return fmt.Errorf("store: memory keeps nothing to look at; the configuration names no file")
	}
	if cfg.Shared() {
		return cfg.Fault("store", errors.New("is a database, and this command reads a file; ask the server, as in psql -c 'SELECT * FROM throttler.readable', and copy it with pg_basebackup or pg_dump"))
	}
	f, err := store.Read(cfg.Store, cfg.Options)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, stop := interruptible(cmd)
	defer stop()
	return do(ctx, f)
}

func storeMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate [-c FILE]", Short: "Bring the schema of a database to the one of this program", Args: exactly(),
		Long: `Bring the schema of the database that keeps calls to the one of this program, as serve does at its start: for who lets
another role do it, or does it before an upgrade. Replicas of both versions can run meanwhile.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			if !cfg.Shared() {
				return cfg.Fault("store", errors.New("is a file, or memory, which serve brings up to date by itself; this command is for a database"))
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			if err := cfg.Migrate(ctx); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "ok: the schema is that of this program")
			return nil
		},
	}
	configFlag(cmd)
	return cmd
}

func storeBackup() *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup [-c FILE] COPY", Short: "Copy the store to a new file, whole and synced", Args: exactly("COPY"),
		Long: `Copy the store, as it is at one instant, to a new file that only its owner can read.

A copy is a past state. To serve from it, put it in the place of the store while no
process has that, and start once with: throttler serve --restored`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return reading(cmd, func(ctx context.Context, f *store.File) error { return f.Backup(ctx, args[0]) })
		},
	}
	configFlag(cmd)
	return cmd
}

func storeSeal() *cobra.Command {
	cmd := &cobra.Command{
		Use: "seal [-c FILE]", Short: "Seal a store that was written without seal_key, or by an older program", Args: exactly(),
		Long: `Encrypt with seal_key what a store has in the clear, and bind each row to the key.

Without a seal the rows could have been written by anybody, and they have the key's
word from then on. The sidecar must not run.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			if cfg.Options.SealKey == nil {
				return fmt.Errorf("seal_key: is missing; name the key that is to seal the store")
			}
			kept, err := cfg.OpenStore(cmd.Context(), store.Options{Seal: true})
			if err != nil || kept == nil {
				return err
			}
			return kept.Close()
		},
	}
	configFlag(cmd)
	return cmd
}

func storeCheck(ctx context.Context, w io.Writer, f *store.File) error {
	n, err := f.Check(ctx)
	if err != nil {
		return err
	}
	if err := f.Copied(); err != nil {
		fmt.Fprintln(w, "warning:", err)
	}
	fmt.Fprintf(w, "ok: %d call(s)\n", n)
	return nil
}

func storeStats(ctx context.Context, w io.Writer, f *store.File) error {
	stats, err := f.Stats(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "UPSTREAM\tSTATE\tCALLS\tOLDEST")
	for _, s := range stats {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", s.Upstream, s.State, s.Calls, s.Oldest.UTC().Format("2006-01-02T15:04:05Z"))
	}
	return table.Flush()
}

func storeExport(ctx context.Context, w io.Writer, f *store.File) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return f.Calls(ctx, func(c *scheduler.Call) error { return encoder.Encode(server.APICall(c)) })
}
