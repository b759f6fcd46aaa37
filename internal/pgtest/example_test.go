package pgtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
)

func Example() {
	server, err := pgtest.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	url, err := server.NewDatabase()
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(context.Background())
	var fsync string
	err = conn.QueryRow(context.Background(), "SHOW fsync").Scan(&fsync)
	fmt.Println("fsync is", fsync, err)
	// Output: fsync is on <nil>
}

// TestKill: a server that was killed keeps its commits, and its address.
func TestKill(t *testing.T) {
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	url, err := server.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	exec := func(query string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE kept (n int)")
	server.Kill()
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Fatal("a server that was killed takes connections")
	}
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	exec("INSERT INTO kept VALUES (1)")
}
