package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/internal/trial"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// maxTried bounds a file that -d or --batch names, in bytes.
const maxTried = 64 << 20

func newTry() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "try [-c FILE] UPSTREAM TARGET",
		Short: "Show what a request would take, and what an answer would mean; nothing is sent",
		Long: `Show the limits under which a request would be counted, with their keys, its flow, its
business numbers, and whether a repeat of it is safe. With --answer, show which rule
decides about an answer, and what follows. No sidecar is needed, and nothing is sent.

The flags -X, -H and -d are those of curl: -d @FILE reads a file, and @- standard
input. A body without a Content-Type is JSON if it can be parsed as such, else a form.`,
		Example: `  throttler try alipay '/gateway.do?method=alipay.trade.refund&app_id=2021' -X POST -d @refund.txt
  throttler try pay /refunds -d '{"order": "1"}' --answer '200 {"code": "40005"}'`,
		Args: exactly("UPSTREAM", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error { return try(cmd, args[0], args[1]) },
	}
	configFlag(cmd)
	outputFlag(cmd)
	requestFlags(cmd)
	cmd.Flags().String("answer", "", "`answer` of the platform to judge: its status, and its body after a space")
	cmd.Flags().StringArray("answer-header", nil, "`field` of the answer's header, such as 'Retry-After: 5'")
	return cmd
}

// requestFlags adds the flags of a request, as curl has them.
func requestFlags(cmd *cobra.Command) {
	cmd.Flags().StringP("request", "X", "", "`method`; POST if there is a body, else GET")
	cmd.Flags().StringArrayP("header", "H", nil, "`field` of the header, such as 'Content-Type: application/json'")
	cmd.Flags().StringP("data", "d", "", "`body`; @FILE reads a file")
}

// try shows the trial of a command line.
func try(cmd *cobra.Command, name, target string) error {
	asJSON, err := wantsJSON(cmd)
	if err != nil {
		return err
	}
	cfg, err := load(cmd)
	if err != nil {
		return err
	}
	up, known := cfg.Scheduler.Upstreams[name]
	if names := slices.Sorted(maps.Keys(cfg.Scheduler.Upstreams)); !known {
		return coded(exitNotFound, fmt.Errorf("upstream %q is not in the configuration; there are %s%s", name, hint.List(names), hint.Meant(name, names)))
	}
	request, err := tried(cmd, target)
	if err != nil {
		return err
	}
	router, err := scheduler.NewRouter(name, up)
	if err != nil {
		return err
	}
	t, err := trial.Of(router, request)
	var refused *scheduler.Error
	if errors.As(err, &refused) {
		return coded(exitRefused, fmt.Errorf("the request would be refused: %s", refused.Detail))
	}
	if err != nil {
		return err
	}
	v, err := judged(cmd, router, request)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
			*trial.Trial
			Answer *trial.Verdict `json:"answer,omitempty"`
		}{t, v})
	}
	return writeTrial(cmd.OutOrStdout(), cfg, name, t, v)
}

// tried returns the request of a command line.
func tried(cmd *cobra.Command, target string) (*upstream.Request, error) {
	flags := cmd.Flags()
	fields, _ := flags.GetStringArray("header")
	header, err := fieldsOf("-H", fields)
	if err != nil {
		return nil, err
	}
	r := &upstream.Request{Target: target, Header: header}
	data, _ := flags.GetString("data")
	if r.Body, err = dataOf(cmd, data); err != nil {
		return nil, err
	}
	if r.Method, _ = flags.GetString("request"); r.Method == "" {
		r.Method = http.MethodGet
		if flags.Changed("data") {
			r.Method = http.MethodPost
		}
	}
	if len(r.Body) > 0 && header.Get("Content-Type") == "" {
		kind := "application/x-www-form-urlencoded"
		if json.Valid(r.Body) {
			kind = "application/json"
		}
		header.Set("Content-Type", kind)
	}
	return r, nil
}

// dataOf returns the body that -d names.
func dataOf(cmd *cobra.Command, data string) ([]byte, error) {
	name, isFile := strings.CutPrefix(data, "@")
	if !isFile {
		return []byte(data), nil
	}
	return readFile(cmd, "-d", name)
}

// readFile reads the file that a flag names; - is standard input.
func readFile(cmd *cobra.Command, flag, name string) ([]byte, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		defer f.Close()
		in = f
	}
	body, err := io.ReadAll(io.LimitReader(in, maxTried+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case len(body) > maxTried:
		return nil, fmt.Errorf("%s: %s has more than %d bytes", flag, name, maxTried)
	}
	return body, nil
}

// fieldsOf parses header fields.
func fieldsOf(flag string, fields []string) (http.Header, error) {
	header := make(http.Header)
	for _, f := range fields {
		name, value, ok := strings.Cut(f, ":")
		if !ok || name == "" {
			return nil, usage("%s is %q, must be a name and a value, such as 'Content-Type: application/json'", flag, f)
		}
		header.Add(textproto.TrimString(name), textproto.TrimString(value))
	}
	return header, nil
}

// judged returns the meaning of --answer, nil without it.
func judged(cmd *cobra.Command, r *scheduler.Router, request *upstream.Request) (*trial.Verdict, error) {
	answer, _ := cmd.Flags().GetString("answer")
	fields, _ := cmd.Flags().GetStringArray("answer-header")
	if answer == "" {
		if len(fields) > 0 {
			return nil, usage("--answer-header needs --answer, such as --answer 429")
		}
		return nil, nil
	}
	header, err := fieldsOf("--answer-header", fields)
	if err != nil {
		return nil, err
	}
	code, body, _ := strings.Cut(answer, " ")
	status, err := strconv.Atoi(code)
	if err != nil || status < 200 || status > 599 {
		return nil, usage("--answer begins with %q, must begin with a status from 200 to 599, as in '200 {\"code\": \"40005\"}'", code)
	}
	return trial.Judge(r, request, status, header, []byte(body))
}

// writeTrial writes what a request would take, and what an answer means, as a table.
func writeTrial(w io.Writer, cfg *config.Config, name string, t *trial.Trial, v *trial.Verdict) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(table, what+"\t"+format+"\n", args...) }
	for i, p := range t.Permits {
		what, key := "", ""
		if i == 0 {
			what = "limits"
		}
		if p.Key != "" {
			key = fmt.Sprintf("key %q", p.Key)
		}
		line(what, "%s\t%s\tcost %d\t%s", p.Limit, key, p.Cost, p.Capacity)
	}
	if len(t.Permits) == 0 {
		line("limits", "none: only the upstream's concurrency bounds it")
	}
	table.Flush()
	if t.Flow != "" {
		line("flow", "%s, weight %v", t.Flow, t.Weight)
	}
	line("priority", "%d at the data listener, 0 if it is submitted", scheduler.DataPriority)
	if len(t.Numbers) > 0 {
		line("numbers", "%s", numbersText(t.Numbers))
	}
	if t.Identity != "" {
		line("identity", "%q: a second call of it is a repeat", t.Identity)
	}
	line("repeat", "%s", repeatText(cfg, name, t))
	if v != nil {
		line("answer", "%s, %s", v.Outcome, decidedBy(cfg, name, v))
		if v.Pauses != "" {
			line("", "pauses %s", v.Pauses)
		}
		line("", "%s", v.Then)
	}
	return table.Flush()
}

// decidedBy says by which rule an answer has its outcome, and by which proof it is done.
func decidedBy(cfg *config.Config, name string, v *trial.Verdict) string {
	by := "by its status alone"
	switch rule, _, _ := strings.Cut(v.Rule, " of preset "); {
	case rule != "":
		by = fmt.Sprintf("by %s of %s: %s", rule, cfg.RuleSource(name, v.Rule), oneLine(v.When))
	case strings.Contains(v.When, ","):
		by = "because of " + oneLine(v.When)
	}
	if v.Proven != "" {
		by += fmt.Sprintf("; proven by %s of %s", v.Proven, cfg.RuleSource(name, v.Proven))
	}
	return by
}

// repeatText says whether a repeat is safe, and how long a signature is good.
func repeatText(cfg *config.Config, name string, t *trial.Trial) string {
	up := cfg.Scheduler.Upstreams[name]
	text := "not recognised by the platform: it may be executed twice"
	if t.Repeatable {
		key := "idempotent"
		if up.Idempotency.Header != "" {
			key = "idempotency.header"
		} else if up.Idempotency.Field != "" {
			key = "idempotency.field"
		}
		text = fmt.Sprintf("recognised by the platform: %s (%s)", key, cfg.Source("upstreams."+name+"."+key))
	}
	switch {
	case t.Signed:
		text += "; signed anew for each attempt"
	case up.Signature.Life > 0:
		text += fmt.Sprintf("; the signature is good for %v", up.Signature.Life)
	}
	return text
}
