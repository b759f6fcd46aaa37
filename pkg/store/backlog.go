package store

import (
	"encoding/json"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A storedBacklog counts the calls of an upstream; meta 'backlog' maps names to it.
type storedBacklog struct {
	Name       string `json:"name"`  // always empty
	URL        string `json:"url"`   // always empty
	State      string `json:"state"` // always empty
	Waiting    int    `json:"waiting"`
	Sending    int    `json:"sending"` // always 0
	Unknown    int    `json:"unknown"`
	MaxWaiting int    `json:"max_waiting"` // always 0
	Bytes      int64  `json:"bytes"`
}

// encodeBacklog returns the value of meta 'backlog'.
func encodeBacklog(backlog map[string]scheduler.Backlog) ([]byte, error) {
	stored := make(map[string]storedBacklog, len(backlog))
	for name, b := range backlog {
		stored[name] = storedBacklog{Waiting: b.Waiting, Unknown: b.Unknown, Bytes: b.Bytes}
	}
	return json.Marshal(stored)
}

func decodeBacklog(text []byte) (map[string]scheduler.Backlog, error) {
	var stored map[string]storedBacklog
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, err
	}
	backlog := make(map[string]scheduler.Backlog, len(stored))
	for name, b := range stored {
		backlog[name] = scheduler.Backlog{Waiting: b.Waiting, Unknown: b.Unknown, Bytes: b.Bytes}
	}
	return backlog, nil
}
