package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var (
	quiet  = slog.New(slog.DiscardHandler)
	server *pgtest.Server
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if server, err = pgtest.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		return m.Run()
	}())
}

// newDatabase returns the URL of an empty database.
func newDatabase(t testing.TB) string {
	t.Helper()
	url, err := server.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// open opens a store, and closes it after the test.
func open(t testing.TB, url string, o Options) *DB {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet
	}
	d, err := Open(context.Background(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

var sealKey = []byte("0123456789abcdef0123456789abcdef")

func TestStore(t *testing.T) {
	for name, key := range map[string][]byte{"in the clear": nil, "sealed": sealKey} {
		if key == nil && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) scheduler.Store {
				d := open(t, newDatabase(t), Options{SealKey: key})
				if _, err := d.Recover(t.Context(), 0, func(*scheduler.Entry) (time.Time, bool) { return time.Time{}, false }); err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
	}
}

func TestDurable(t *testing.T) {
	for name, key := range map[string][]byte{"in the clear": nil, "sealed": sealKey} {
		if key != nil && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunDurable(t, func(t *testing.T) func() scheduler.Durable {
				url := newDatabase(t)
				return func() scheduler.Durable { return open(t, url, Options{SealKey: key}) }
			})
		})
	}
}
