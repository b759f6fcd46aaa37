package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirmFlag adds --yes.
func confirmFlag(cmd *cobra.Command) {
	cmd.Flags().BoolP("yes", "y", false, "do not ask")
}

// confirm says on standard error what a command will do, and asks on a terminal whether it
// should. Without a terminal --yes is needed.
func confirm(cmd *cobra.Command, format string, args ...any) error {
	will := fmt.Sprintf(format, args...)
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		return nil
	}
	if !interactive(cmd.InOrStdin()) {
		return usage("%s; standard input is no terminal to ask at: add --yes", will)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s. Go on? [y/N] ", will)
	answer, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 100)).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return coded(exitInterrupted, fmt.Errorf("nothing was done"))
}

// interactive reports whether a reader is a terminal.
func interactive(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
