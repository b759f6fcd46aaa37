package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of a batch of submissions.
const (
	maxBatchBytes = 16 << 20
	maxBatchLines = 1000
)

// submitCalls submits the calls of a batch. Each is accepted or refused by itself. They are handed
// over together, so that the store takes them in few transactions.
func submitCalls(a *Admin, r request[api.Submission]) ([]api.BatchResult, error) {
	if len(r.Header["Idempotency-Key"]) > 0 {
		return nil, badRequest("the header Idempotency-Key is for one call; give each line its idempotency_key")
	}
	lines, results, err := batchOf(r.bytes)
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	for i, line := range lines {
		a.lines <- struct{}{}
		all.Go(func() {
			defer func() { <-a.lines }()
			submitLine(a, r.Request, line, &results[i])
		})
	}
	all.Wait()
	return results, nil
}

// batchOf returns the lines of a batch that are not blank, and for each a result with its number.
// It refuses as a whole a body that has no lines or too many, or is no NDJSON, such as an array, or
// an object over several lines.
func batchOf(body []byte) (lines [][]byte, results []api.BatchResult, err error) {
	n, count, objects := 0, 0, false
	for line := range bytes.Lines(body) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if count++; count > maxBatchLines {
			continue
		}
		objects = objects || line[0] == '{' && json.Valid(line)
		lines, results = append(lines, line), append(results, api.BatchResult{Line: n})
	}
	switch {
	case count == 0:
		return nil, nil, badRequest("the body is empty; send a submission on each line")
	case count > maxBatchLines:
		return nil, nil, &scheduler.Error{Reason: scheduler.TooLarge, Detail: fmt.Sprintf("the body has %d lines, at most %d are taken at a time; nothing was accepted", count, maxBatchLines)}
	case !objects:
		return nil, nil, badRequest("the body is no NDJSON: none of its lines is a JSON object; send each submission on one line; nothing was accepted")
	}
	return lines, results, nil
}

// submitLine submits the call of one line.
func submitLine(a *Admin, r *http.Request, line []byte, result *api.BatchResult) {
	var err error
	defer func() {
		if bug := recover(); bug != nil { // here it would end the process
			a.Log.Error("BUG: a line of a batch panicked", "line", result.Line, "panic", bug, "stack", string(debug.Stack()))
			err = &scheduler.Error{Detail: "an internal error; the call may have been accepted: look for it before you send it again"}
		}
		if err != nil {
			p := problemOf(r, err)
			result.Problem = &p
		}
	}()
	var s api.Submission
	f := &faults{}
	readJSON(line, &s, f)
	call, err := submit(a, r, &s, nil, f)
	if err == nil {
		result.Replayed = call.Repeated
		result.Call, err = withCall(call, nil)
	}
}
