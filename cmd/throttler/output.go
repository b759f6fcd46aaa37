package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// The forms of -o. JSON is the body of the admin API's answer, byte for byte.
var forms = []string{"table", "json", "ndjson", "yaml", "name"}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "table", "`form` of the output: "+hint.List(forms))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { // before anything is asked for
		_, err := formOf(cmd)
		return err
	}
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
}

// formOf returns the form that -o names. Text is another word for table.
func formOf(cmd *cobra.Command) (string, error) {
	form, _ := cmd.Flags().GetString("output")
	if form == "text" {
		return "table", nil
	}
	if !slices.Contains(forms, form) {
		return "", usage("--output is %q, must be one of: %s%s", form, hint.List(forms), hint.Meant(form, forms))
	}
	return form, nil
}

// A printout is the answer of a command in all forms.
type printout struct {
	body  []byte                  // JSON
	items string                  // member of the body that is a list; empty: the body is one thing
	names []string                // for -o name
	table func(w io.Writer) error // for people
}

// print writes a printout in the form of -o.
func (p printout) print(cmd *cobra.Command) error {
	form, err := formOf(cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch form {
	case "json":
		_, err = w.Write(p.body)
	case "ndjson":
		err = writeLines(w, p.body, p.items)
	case "yaml":
		err = writeYAML(w, p.body)
	case "name":
		for _, name := range p.names {
			fmt.Fprintln(w, name)
		}
	default:
		err = p.table(w)
	}
	return err
}

// writeLines writes each item of a list on a line; a body without a list is one line.
func writeLines(w io.Writer, body []byte, items string) error {
	all := []json.RawMessage{body}
	if items != "" {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			return err
		}
		if err := json.Unmarshal(members[items], &all); err != nil {
			return err
		}
	}
	for _, item := range all {
		var line bytes.Buffer
		if err := json.Compact(&line, item); err != nil {
			return err
		}
		line.WriteByte('\n')
		if _, err := line.WriteTo(w); err != nil {
			return err
		}
	}
	return nil
}

// writeYAML writes JSON, which is YAML, in blocks and in its order.
func writeYAML(w io.Writer, body []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(body, &doc); err != nil {
		return err
	}
	inBlocks(&doc)
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(&doc); err != nil {
		return err
	}
	return encoder.Close()
}

func inBlocks(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		n.Style = 0
	} else {
		n.Style = yaml.DoubleQuotedStyle
	}
	for i, below := range n.Content {
		inBlocks(below)
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			below.Style = 0
		}
	}
}

// wantsJSON reads -o of a command that has JSON and text only.
func wantsJSON(cmd *cobra.Command) (bool, error) {
	switch form, _ := cmd.Flags().GetString("output"); form {
	case "text", "table":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, usage("--output is %q, must be text or json", form)
	}
}
