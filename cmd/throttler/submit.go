package main

import (
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/api/client"
)

func newCallsSubmit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit UPSTREAM TARGET | --batch FILE",
		Short: "Submit a call, or many, which are kept and sent when their limits have room for them",
		Long: `Submit a call, which is kept and sent when its limits have room for it. The flags -X, -H
and -d are those of throttler try, which shows beforehand what the call would take.

With --idempotency-key a second submission is the same call.

With --batch each line of a file, or of standard input (-), is a call in JSON, as the body of
POST /v1/calls: at most 1,000 lines and 16 MiB. Each is accepted or refused by itself, and has
a line in the output. The exit code is 4 if any was refused.`,
		Example: `  throttler calls submit alipay '/gateway.do?method=alipay.trade.refund&app_id=2021' -d @refund.txt --idempotency-key R-88123
  throttler calls submit --batch refunds.ndjson`,
		Args: submitArgs, ValidArgsFunction: completeFirst(completeUpstreams),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name, _ := cmd.Flags().GetString("batch"); cmd.Flags().Changed("batch") {
				return submitBatch(cmd, name)
			}
			in, err := submission(cmd, args[0], args[1])
			if err != nil {
				return err
			}
			body, err := callAPI(cmd, http.MethodPost, "/v1/calls", nil, in)
			if err != nil {
				return err
			}
			call, err := decode[client.Call](body)
			if err != nil {
				return err
			}
			return printout{body: body, names: []string{call.Id}, table: func(w io.Writer) error { return writeCall(w, call, time.Now()) }}.print(cmd)
		},
	}
	requestFlags(cmd)
	cmd.Flags().Int("priority", 0, "`number` from -100 to 100; higher goes first")
	cmd.Flags().String("not-before", "", "earliest `instant` (RFC 3339) at which it is sent")
	cmd.Flags().String("deadline", "", "latest `instant` (RFC 3339) at which it is sent")
	cmd.Flags().String("idempotency-key", "", "`key` of repeats")
	cmd.Flags().String("callback", "", "`name` of the callback that is told of its end")
	cmd.Flags().String("batch", "", "`file` with a call in JSON on each line; - reads standard input")
	outputFlag(cmd)
	return cmd
}

// submission returns the call of a command line.
func submission(cmd *cobra.Command, upstream, target string) (*client.Submission, error) {
	r, err := tried(cmd, target)
	if err != nil {
		return nil, err
	}
	flags := cmd.Flags()
	in := &client.Submission{Upstream: upstream, Method: r.Method, Target: target, Headers: r.Header, BodyBase64: r.Body}
	in.Priority, _ = flags.GetInt("priority")
	in.IdempotencyKey, _ = flags.GetString("idempotency-key")
	in.Callback, _ = flags.GetString("callback")
	if in.NotBefore, err = instantFlag(cmd, "not-before"); err != nil {
		return nil, err
	}
	in.Deadline, err = instantFlag(cmd, "deadline")
	return in, err
}

// instantFlag returns the instant of a flag, zero for none.
func instantFlag(cmd *cobra.Command, name string) (time.Time, error) {
	text, _ := cmd.Flags().GetString(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usage("--%s is %q, must be an instant of RFC 3339 such as 2026-11-21T09:00:00Z", name, text)
	}
	return at, nil
}
