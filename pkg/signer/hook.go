package signer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os/exec"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds of hooks: concurrent runs, and bytes of an answer.
const (
	maxHooks  = 32
	maxAnswer = 16 << 20
)

// A Hook is the message to and from a program that signs (standard input and output)
// or a service that signs (the bodies of a POST and its response). Fields absent
// from the answer stay unchanged; headers are set, and deleted where empty. The
// method cannot be changed. If a program fails, or a service does not answer 200 in
// time, the calls wait, and one call at a time tries again.
type Hook struct {
	Method  string            `json:"method,omitempty"`
	Target  string            `json:"target,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    *[]byte           `json:"body_base64,omitempty"`
}

// ask sends a question to a program or service and returns its answer.
type ask func(ctx context.Context, question []byte) ([]byte, error)

type hook struct {
	ask     ask
	timeout time.Duration
	running chan struct{} // bounds concurrent runs
}

func newHook(timeout time.Duration, a ask) *hook {
	return &hook{a, timeout, make(chan struct{}, maxHooks)}
}

// later is a temporary error: the call waits and is signed again.
type later struct{ error }

func (later) Temporary() bool { return true }

func (h *hook) Sign(ctx context.Context, r *upstream.Request) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	case <-ctx.Done():
		return later{fmt.Errorf("%d signatures are being made, none has ended within %v", maxHooks, h.timeout)}
	}
	question := Hook{Method: r.Method, Target: r.Target, Headers: make(map[string]string), Body: &r.Body}
	for name := range r.Header {
		question.Headers[name] = r.Header.Get(name)
	}
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	text, err = h.ask(ctx, text)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return later{err}
	}
	var answer Hook
	if err := json.Unmarshal(text, &answer); err != nil {
		return later{errors.New("the answer is not the JSON that is expected")}
	}
	if answer.Target != "" {
		r.Target = answer.Target
	}
	if answer.Body != nil {
		r.Body = *answer.Body
	}
	for name, value := range answer.Headers {
		if setHeader(r, name, value); value == "" {
			r.Header.Del(name)
		}
	}
	return nil
}

// findProgram returns an error if there is a program that cannot be run. The program may
// still be replaced, or go, later.
func findProgram(command []string) error {
	if len(command) == 0 {
		return nil // check reports that it is missing
	}
	_, err := exec.LookPath(command[0])
	var why *exec.Error
	if errors.As(err, &why) {
		err = why.Err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("program %s cannot be executed; run chmod +x on it", command[0])
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %s in the directories of PATH; write its path, or install it", command[0])
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no program %s; write the path of one, with its arguments as further items", command[0])
	}
	return fmt.Errorf("program %s: %w", command[0], err)
}

// execute runs a program for each signature.
func execute(command []string) ask {
	return func(ctx context.Context, question []byte) ([]byte, error) {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Stdin = bytes.NewReader(question)
		out := &bounded{}
		cmd.Stdout = out // standard error may show secrets: it is discarded
		cmd.WaitDelay = time.Second
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("program %s: %w", command[0], err)
		}
		return out.Bytes(), nil
	}
}

// bounded keeps an output up to maxAnswer.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxAnswer {
		return 0, fmt.Errorf("it writes more than %d bytes", maxAnswer)
	}
	return b.Buffer.Write(p)
}

// post asks a service for each signature.
func post(address string) (ask, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, errors.New("is not a URL with http or https, a host and no user name")
	}
	client := &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: maxHooks, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, question []byte) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(question))
		if err != nil {
			return nil, errors.New("the service's URL cannot be used")
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // without the URL
		}
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", u.Host, err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("service %s: status %d", u.Host, resp.StatusCode)
		}
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err == nil && len(answer) > maxAnswer {
			err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
		}
		return answer, err
	}, nil
}
