//go:build scripts

// These tests need node, npm packages and python3-stripe: make sdk-scripts.

package sdk

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// script runs a program in a folder that makes refunds with an SDK; each call of the result
// is one refund.
func script(dir string, command ...string) func(*testing.T, string, gateway.Keys, string) func() string {
	return func(t *testing.T, base string, keys gateway.Keys, public string) func() string {
		cmd := exec.Command(command[0], append(command[1:], base)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PRIVATE_KEY="+keys.Private, "PUBLIC_KEY="+public)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			cmd.Wait()
		})
		lines := bufio.NewScanner(out)
		return func() string {
			io.WriteString(in, "refund\n")
			for lines.Scan() {
				var seen string
				if json.Unmarshal(lines.Bytes(), &seen) == nil {
					return seen
				} // other lines are from a library
			}
			return "the program ended"
		}
	}
}

func TestNodeAlipay(t *testing.T) {
	client{
		name: "alipay-sdk", preset: "alipay", make: script("node", "node", "refund.mjs", "alipay"),
		limited: []string{"40005"}, refused: []string{"40005"}, down: []string{"40005"},
		unknown: []string{"20000", "ACQ.SYSTEM_ERROR"}, lost: []string{"20000"},
	}.test(t)
}

func TestNodeAlipayV3(t *testing.T) {
	client{
		name: "alipay-sdk", preset: "alipay-v3", make: script("node", "node", "refund.mjs", "alipay-v3"),
		limited: []string{"app-call-limited"}, refused: []string{"app-call-limited"}, down: []string{"app-call-limited"},
		unknown: []string{"unknow-error", "ACQ.SYSTEM_ERROR"}, lost: []string{"unknow-error"},
	}.test(t)
}

func TestNodeStripe(t *testing.T) {
	client{
		name: "stripe", preset: "stripe", make: script("node", "node", "refund.mjs", "stripe"),
		limited: []string{"429 rate_limit"}, refused: []string{"429 rate_limit"}, down: []string{"502 not_executed"},
		unknown: []string{"500"}, lost: []string{"504 unknown_outcome"},
		tries: 3, // under the same Idempotency-Key
	}.test(t)
}

func TestPythonStripe(t *testing.T) {
	client{
		name: "stripe-python", preset: "stripe", make: script("python", "/usr/bin/python3", "refund.py"),
		limited: []string{"429 rate_limit"}, refused: []string{"429 rate_limit"}, down: []string{"502 not_executed"},
		unknown: []string{"500"}, lost: []string{"504 unknown_outcome"},
	}.test(t)
}
