package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// Faults of a command line lie in this file: each names the mistake and the words that exist.

// usage returns the error of a command line.
func usage(format string, args ...any) error { return coded(exitUsage, fmt.Errorf(format, args...)) }

// group makes a command one of others: alone it shows its help, and an unknown command in
// it is an error.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	return cmd
}

func unknownCommand(group *cobra.Command, name string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usage("unknown command %q of %s; the commands are %s%s", name, group.CommandPath(), hint.List(names), hint.Meant(name, names))
}

// exactly wants one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		use := "write: " + cmd.Parent().CommandPath() + " " + cmd.Use
		switch {
		case len(args) < len(names):
			return usage("%s is missing; %s", strings.Join(names[len(args):], " and "), use)
		case len(args) > len(names) && strings.HasSuffix(args[len(names)], ".yaml") && cmd.Flags().Lookup("config") != nil:
			return usage("%q is an argument too many; give a configuration as -c %[1]s", args[len(names)])
		case len(args) > len(names):
			return usage("%q is an argument too many; %s", args[len(names)], use)
		}
		return nil
	}
}

// flagTypes are the types of flags in words.
var flagTypes = map[string]string{
	"bool":     "true or false",
	"duration": "a duration; write it as 1s, 500ms or 1m30s",
	"int":      "a whole number",
	"uint64":   "a whole number from 0",
}

// flagError words an error of pflag. In front of an unknown flag may be an unknown command.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := unknown.GetSpecifiedName()
		if meant := hint.Nearest(name, names); meant != "" {
			return usage("unknown flag --%s; did you mean --%s?", name, meant)
		}
		return usage("unknown flag --%s; see %s --help", name, cmd.CommandPath())
	case errors.As(err, &unknown):
		return usage("unknown flag -%s; see %s --help", unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &invalid) && flagTypes[invalid.GetFlag().Value.Type()] != "":
		return usage("--%s is %q, must be %s", invalid.GetFlag().Name, invalid.GetValue(), flagTypes[invalid.GetFlag().Value.Type()])
	}
	return coded(exitUsage, err)
}
