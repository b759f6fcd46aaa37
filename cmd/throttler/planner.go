package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A planner previews loads for the admin API, one at a time, in a process of its own: the loop of
// the scheduler keeps its processor and its memory.
type planner struct {
	log      *slog.Logger
	busy     chan struct{} // has room for the one that runs
	stopping context.Context
	stop     func() // ends the one that runs, and refuses others
}

func newPlanner(log *slog.Logger) *planner {
	stopping, stop := context.WithCancel(context.Background())
	return &planner{log, make(chan struct{}, 1), stopping, stop}
}

// plan is a [server.Planner].
func (p *planner) plan(ctx context.Context, in api.PlanRequest, running map[string]scheduler.Upstream) (*api.Plan, error) {
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	default:
		return nil, &scheduler.Error{Reason: scheduler.Full, RetryAfter: 5 * time.Second, Detail: "another preview runs; ask again when it has ended"}
	}
	text, err := json.Marshal(bundle{in, plannedOf(running)})
	if err != nil {
		return nil, err
	}
	out, err := p.child(ctx, text)
	if err != nil {
		return nil, err
	}
	var result struct {
		Plan      *api.Plan
		Faults    []api.Fault
		BadConfig bool `json:"bad_config"`
	}
	switch err := json.Unmarshal(out, &result); {
	case err != nil:
		return nil, fmt.Errorf("the preview has no result: %w", err)
	case result.BadConfig:
		return nil, server.BadConfig(fmt.Sprintf("the configuration has %d fault(s); nothing was played", len(result.Faults)), result.Faults)
	case result.Plan == nil:
		return nil, server.BadRequest(result.Faults)
	}
	return result.Plan, nil
}

// child plays a bundle in a process without an environment, of the lowest priority. It is killed
// when ctx ends, or the planner stops. It ends by itself when this process ends, in whichever way:
// its input, which this process holds open, ends with it.
func (p *planner) child(ctx context.Context, bundle []byte) ([]byte, error) {
	own, err := ownBinary()
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, planTime+5*time.Second) // it ends by itself before that
	defer cancel()
	defer context.AfterFunc(p.stopping, cancel)()
	cmd := exec.CommandContext(limited, own, bundleCommand)
	cmd.Env = []string{"GOMAXPROCS=1", fmt.Sprintf("GOMEMLIMIT=%d", planMemory), "GOTRACEBACK=single"}
	cmd.WaitDelay = time.Second
	out, messages := &bounded{most: maxPlanText}, &bounded{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, messages
	apart(cmd)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, writeErr := in.Write(bundle)
		if err = cmd.Wait(); err == nil && out.Len() == 0 { // Wait closes the input, not before the end
			err = writeErr
		}
	}
	switch {
	case p.stopping.Err() != nil:
		return nil, &scheduler.Error{Reason: scheduler.Stopping, Detail: "the sidecar stops, and the preview was ended; ask again when it runs"}
	case ctx.Err() != nil:
		return nil, &scheduler.Error{Reason: scheduler.Gone, Detail: "the client has left, and the preview was ended"}
	case out.cut:
		return nil, server.BadRequest([]api.Fault{{Pointer: "/variants", Detail: fmt.Sprintf("the result has more than %d bytes; ask for fewer variants, or use throttler plan", maxPlanText)}})
	case limited.Err() != nil:
		return nil, server.BadRequest([]api.Fault{{Detail: fmt.Sprintf("the preview takes longer than %v; give it a shorter load, or use throttler plan", planTime)}})
	case err != nil && killed(cmd):
		p.log.Warn("preview: the system has ended its process", "err", err)
		return nil, &scheduler.Error{Reason: scheduler.Full, RetryAfter: 5 * time.Second, Detail: "the system has ended the process of the preview, as it does when memory is short; give it a shorter load, or use throttler plan on another machine"}
	case err != nil:
		p.log.Error("preview: its process has failed", "err", err, "stderr", messages.String())
		return nil, errors.New("the process of the preview has failed; the log has more")
	}
	return out.Bytes(), nil
}

// killed reports whether a signal has ended a command that has started.
func killed(cmd *exec.Cmd) bool {
	return cmd.ProcessState != nil && !cmd.ProcessState.Exited()
}

// bounded keeps the beginning of an output.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool
}

func (b *bounded) Write(text []byte) (int, error) {
	if b.Len()+len(text) > b.most {
		b.cut = true
		return 0, io.ErrShortWrite
	}
	return b.Buffer.Write(text)
}
