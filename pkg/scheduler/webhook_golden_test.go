package scheduler

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestWebhookBody holds the body of webhooks, a contract with their receivers.
func TestWebhookBody(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 11, 22, 9, 0, seconds, 0, time.UTC) }
	for name, c := range map[string]*Call{
		"full": {
			ID: "0192f3c4-0000-7000-8000-000000000001", Upstream: "alipay", State: Unknown, Priority: -5, Async: true, Durable: true, Repeated: true,
			Callback: "shop", Resolves: "0192f3c4-0000-7000-8000-000000000000", AcceptedAt: at(0), NotBefore: at(1), Deadline: at(59), FinishedAt: at(9), ETA: at(2),
			Attempts: []Attempt{
				{N: 1, SentAt: at(2), EndedAt: at(3), Status: 502, Outcome: upstream.Unknown, Reason: "status 502", Resolved: true},
				{N: 2, SentAt: at(4)},
			},
			WaitingFor: &WaitingFor{Limit: "app"},
			Response:   &Response{Status: 502, Headers: http.Header{"Content-Type": {"text/html"}}, Body: []byte("<bad gateway>"), Truncated: true},
			Stored:     &Stored{Seq: 7, Class: 3},
		},
		"minimal": {ID: "0192f3c4-0000-7000-8000-000000000002", Upstream: "alipay", State: Expired, Async: true, AcceptedAt: at(0)},
	} {
		got, err := webhookBody(c, at(10))
		if err != nil {
			t.Fatal(err)
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, got, "", "  "); err != nil {
			t.Fatal(err)
		}
		pretty.WriteByte('\n')
		path := filepath.Join("testdata", "webhook."+name+".json")
		if *update {
			if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(pretty.Bytes(), want) {
			t.Errorf("%s:\n%s\nwant\n%s", path, pretty.Bytes(), want)
		}
	}
}
