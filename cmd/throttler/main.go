// Command throttler is the sidecar between clients and the rate-limited APIs that they
// call: it keeps the APIs' limits for them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	gover "go/version"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// version is set by the build.
var version = "devel"

// oldestGo is the toolchain of go.mod: older ones have known faults in net/http and
// crypto/tls, but GOTOOLCHAIN=local builds with them.
const oldestGo = "go1.26.9"

// outdated returns a warning if a toolchain is older than oldestGo, empty if not.
func outdated(toolchain string) string {
	if gover.Compare(toolchain, oldestGo) >= 0 || !gover.IsValid(toolchain) {
		return ""
	}
	return fmt.Sprintf("this binary was built with %s, which has known faults in net/http and crypto/tls; build it with %s or newer, as make build does", toolchain, oldestGo)
}

func main() {
	log.SetOutput(io.Discard) // net/http writes surplus bytes of an answer there; ours is slog
	tuneGC()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var faults config.Errors
	if errors.As(err, &faults) {
		fmt.Fprintln(stderr, "throttler: the configuration has faults:")
		for _, f := range faults {
			fmt.Fprintf(stderr, "  %v\n", f)
		}
	} else if !errors.Is(err, errSilent) {
		for line := range strings.Lines(err.Error()) { // one for each joined error
			fmt.Fprintf(stderr, "throttler: %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "throttler",
		Short: "Call rate-limited APIs without breaking their limits, wasting quota or losing a call",
		Long: `Throttler sends the requests of clients to the rate-limited APIs that they call.
It gives each request the slot at which the API's limits have room for it,
sends it then, and passes the response back.`,
		Version:       version + " " + runtime.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	return group(root, newServe(), newCheck(), newConfig(), newTry(), newPlan(), newTest(), newStatus(), newFind(), newCalls(), newUpstreams(), newLimits(), newFlows(), newPauses(), newPause(), newResume(), newReload(), newAudit(), newFleet(), newReady(), newRecord(), newPresets(), newStore(), newToken(), newVersion(), newPlayBundle())
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and that of Go",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "throttler version", cmd.Root().Version)
			return err
		},
	}
}

// interruptible returns a command's context, which the first SIGINT or SIGTERM
// ends; the second one ends the process.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// configFlag adds the flag of the configuration file.
func configFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("config", "c", "", "configuration `file` (YAML), or - for standard input (default $"+config.FileVariable+", or "+defaultConfig+")")
}

const (
	defaultConfig = "throttler.yaml" // of a command line without -c
	standardInput = "/dev/stdin"     // the path of -c -
)

// configPath returns the path of the configuration.
func configPath(cmd *cobra.Command) string {
	path, _ := cmd.Flags().GetString("config")
	path = cmp.Or(path, os.Getenv(config.FileVariable), defaultConfig)
	if path == "-" {
		return standardInput
	}
	return path
}

// load reads the configuration of a command's flags.
func load(cmd *cobra.Command) (*config.Config, error) {
	path := configPath(cmd)
	cfg, err := config.Load(path, cmd.Flags())
	var faults config.Errors
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, &faults) {
		err = fmt.Errorf("there is no configuration %s; give its path with -c FILE, or in %s", path, config.FileVariable)
	}
	return cfg, err
}
