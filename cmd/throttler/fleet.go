package main

import (
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newFleet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "List the replicas that serve from one database, and which of them has the calls",
		Long: `List the replicas that serve from one database: which of them has the calls, when each was heard of, its
version, and whether its limits are those of the owner, which are in force. Every replica can be asked.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			body, fleet, err := read[client.Fleet](cmd, "/v1/fleet", nil)
			if err != nil {
				return err
			}
			return printFleet(cmd, body, fleet)
		},
	}
	addrFlag(cmd)
	outputFlag(cmd)
	cmd.AddCommand(newFleetMove(), newFleetBury())
	return cmd
}

func printFleet(cmd *cobra.Command, body []byte, fleet *client.Fleet) error {
	var names []string
	for _, r := range fleet.Replicas {
		names = append(names, r.Name)
	}
	return printout{body: body, items: "replicas", names: names, table: func(w io.Writer) error { return writeFleet(w, fleet) }}.print(cmd)
}

func writeFleet(w io.Writer, fleet *client.Fleet) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tCALLS\tHEARD OF\tADDRESS\tVERSION\tCONFIG\tJOINED")
	for _, r := range fleet.Replicas {
		calls, config := "-", r.Config
		if r.Owner {
			calls = fmt.Sprintf("owner %d", fleet.Epoch)
		}
		if r.Differs {
			config += " differs"
		}
		heard := time.Duration(r.SilentMs) * time.Millisecond
		fmt.Fprintf(t, "%s\t%s\t%s ago\t%s\t%s\t%s\t%s\n", plain(r.Name), calls, heard, orDash(r.Address), r.Version, orDash(config), instantText(r.JoinedAt, time.Now()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case fleet.Owner == "" && fleet.Epoch > 0:
		fmt.Fprintln(w, "no replica has the calls now; one that waits will have them soon")
	case fleet.Next != "":
		fmt.Fprintf(w, "%s is handing the calls over to %s\n", fleet.Owner, fleet.Next)
	}
	return nil
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newFleetMove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move [NAME]",
		Short: "Hand the calls over to another replica, such as before its host is restarted",
		Long: `Hand the calls over to the replica with a name, or to any other one. The owner ends its attempts, as in a
stop, within grace, and waits then like the others. Clients that wait are passed on; none is refused.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := client.Move{Reason: reasonOf(cmd)}
			if len(args) > 0 {
				in.To = args[0]
			}
			return changeFleet(cmd, "/v1/fleet/move", in)
		},
	}
	reasonFlag(cmd, "kept in the audit")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func newFleetBury() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bury NAME --it-has-ended",
		Short: "State that the process of a replica has ended: its calls are taken over at once",
		Long: `State that the process of a replica has ended, as you know because its host is gone, or ps shows that it is.
Its calls are taken over at once, and limits are not held back for attempts that it might still make, also if a
supervisor has started it again. It must have been silent for half a lease; after another replica has taken over
by itself, a lease later, this changes no limit any more. If the process lives after all, cut off from the database,
limits may be broken.`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ended, _ := cmd.Flags().GetBool("it-has-ended")
			if !ended {
				return usage("--it-has-ended is missing; make sure that the process of %s has ended, and say so", args[0])
			}
			return changeFleet(cmd, "/v1/fleet/bury", client.Burial{Replica: args[0], ItHasEnded: true, Reason: reasonOf(cmd)})
		},
	}
	cmd.Flags().Bool("it-has-ended", false, "the process has ended: you have made sure of it")
	reasonFlag(cmd, "kept in the audit")
	addrFlag(cmd)
	outputFlag(cmd)
	return cmd
}

func changeFleet(cmd *cobra.Command, path string, in any) error {
	body, err := callAPI(cmd, http.MethodPost, path, nil, in)
	if err != nil {
		return err
	}
	fleet, err := decode[client.Fleet](body)
	if err != nil {
		return err
	}
	return printFleet(cmd, body, fleet)
}
