package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/api/client"
	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func newRecord() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "record FILE.jsonl",
		Short: "Record the calls that come in to a running sidecar, as a load for throttler plan",
		Long: `Record the calls that come in to a running sidecar, as a load for throttler plan.

A recorded call has its instant, upstream, priority, max wait and delay (until its
not_before), and the values of the limits' expressions: nothing else of the request.
Keys and flows are written as hashes that differ from one recording to the next;
--plain writes them as they are. Ctrl-C ends the recording, or --for does.`,
		Args: exactly("FILE.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if length, _ := cmd.Flags().GetDuration("for"); length < 0 {
				return fmt.Errorf("--for is %v, must not be negative", length)
			}
			file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("record: %w", err)
			}
			n, err := record(cmd, file)
			err = errors.Join(err, file.Close())
			if n == 0 { // an empty file is no load, and would block the next recording
				return errors.Join(err, os.Remove(args[0]))
			}
			return err
		},
	}
	addrFlag(cmd)
	cmd.Flags().String("upstream", "", "only calls of this upstream")
	cmd.Flags().Duration("for", 0, "how long; 0s until Ctrl-C")
	cmd.Flags().Bool("plain", false, "write keys and flows as they are: they may be personal or secret")
	return cmd
}

// record writes the calls that come in, and returns their number.
func record(cmd *cobra.Command, w io.Writer) (n int, err error) {
	ctx, stop := interruptible(cmd)
	defer stop()
	if length, _ := cmd.Flags().GetDuration("for"); length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	limits, err := limitNames(cmd)
	if err != nil {
		return 0, err
	}
	plain, _ := cmd.Flags().GetBool("plain")
	recorder := workload.NewRecorder(w, limits, plain)
	query := url.Values{"routes": {"true"}, "kind": {client.EventAccepted, client.EventRefused}}
	if v, _ := cmd.Flags().GetString("upstream"); v != "" {
		query.Set("upstream", v)
	}
	lost := ""
	err = subscribe(ctx, cmd, query, func(ev sse.Event) error {
		if ev.Type == client.EventLost {
			lost = ev.Data
			return nil
		}
		var e client.Event
		if err := json.Unmarshal([]byte(ev.Data), &e); err != nil || e.Route == nil {
			return err
		}
		n++
		route := &scheduler.Route{Keys: e.Route.Keys, Costs: e.Route.Costs, Flow: e.Route.Flow, Weighted: e.Route.Weighted}
		return recorder.Write(e.At, workload.NewArrival(e.Upstream, e.Priority, e.At, e.Deadline, e.NotBefore, route))
	})
	if lost != "" {
		err = errors.Join(err, fmt.Errorf("the recording has gaps, events were lost: %s", lost))
	}
	if fmt.Fprintf(cmd.ErrOrStderr(), "%d calls recorded\n", n); n == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "there is no file: nothing came in")
	}
	return n, err
}

// limitNames returns the names of the limits of each upstream.
func limitNames(cmd *cobra.Command) (map[string][]string, error) {
	_, all, err := read[client.Limits](cmd, "/v1/limits", nil)
	if err != nil {
		return nil, err
	}
	names := make(map[string][]string)
	for _, l := range all.Limits {
		if l.Limit != client.ConcurrencyLimit {
			names[l.Upstream] = append(names[l.Upstream], l.Limit)
		}
	}
	return names, nil
}
