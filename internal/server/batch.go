package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of a batch of submissions.
const (
	maxBatchBytes = 16 << 20
	maxBatchLines = 1000
)

// submitCalls submits the calls of a batch. Each is accepted or refused by itself. They are handed
// over together, so that the store takes them in few transactions. Those that a stop leaves go on to the next replica.
func submitCalls(a *Admin, r request[api.Submission]) ([]api.BatchResult, error) {
	if len(r.Header["Idempotency-Key"]) > 0 {
		return nil, badRequest("the header Idempotency-Key is for one call; give each line its idempotency_key")
	}
	lines, results, err := batchOf(r.bytes)
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	errs := make([]error, len(lines))
	for i, line := range lines {
		a.lines <- struct{}{}
		all.Go(func() {
			defer func() { <-a.lines }()
			errs[i] = submitLine(a, r.Request, line, &results[i])
		})
	}
	all.Wait()
	var left []int
	at := stay{}
	for i, err := range errs {
		if err != nil && goesOn(err) && a.Standby != nil {
			left = append(left, i)
			at.joined = at.joined || joins(asError(err))
		}
	}
	if len(left) > 0 {
		goOnWith(a, r.Request, at, left, lines, results)
	}
	return results, nil
}

// goOnWith passes the lines that a stop has left on to the next replica, as a batch, and puts their results in place.
func goOnWith(a *Admin, r *http.Request, at stay, left []int, lines [][]byte, results []api.BatchResult) {
	var body bytes.Buffer
	for _, i := range left {
		body.Write(lines[i])
		body.WriteByte('\n')
	}
	kept := &keptAnswer{header: http.Header{}}
	at.since = time.Now()
	at.latest = at.since.Add(AdminWait)
	func() {
		defer func() { // the answer broke off: the lines that were taken here have theirs
			if bug := recover(); bug != nil && bug != http.ErrAbortHandler {
				panic(bug)
			}
		}()
		a.Standby.pass(kept, r.Clone(context.WithValue(r.Context(), madeHere{}, true)), body.Bytes(), at)
	}()
	answer, of := json.NewDecoder(&kept.body), problemOf(r, errOwnerGone)
	if kept.status != http.StatusOK {
		answer.Decode(&of) // the problem of the whole
	}
	for _, i := range left {
		var result api.BatchResult
		if kept.status != http.StatusOK || answer.Decode(&result) != nil {
			result = api.BatchResult{Problem: &of}
		}
		result.Line = results[i].Line
		results[i] = result
	}
}

// A keptAnswer is an answer in memory.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keptAnswer) Header() http.Header         { return k.header }
func (k *keptAnswer) Write(p []byte) (int, error) { return k.body.Write(p) }
func (k *keptAnswer) WriteHeader(status int)      { k.status = status }
func (k *keptAnswer) Flush()                      {}

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
func submitLine(a *Admin, r *http.Request, line []byte, result *api.BatchResult) (err error) {
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
	return err
}
