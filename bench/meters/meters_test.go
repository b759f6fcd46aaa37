package main

import (
	"net/http"
	"testing"
)

// TestReceiversCount: a receiver of Go counts the requests, and those that it limits and lets through.
func TestReceiversCount(t *testing.T) {
	r, err := inProcess(gcra(1))(t.TempDir(), plan{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	for range 5 {
		resp, err := http.Post("http://"+r.addr+"/", "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	c, err := r.count()
	if err != nil || c.Requests != 5 || c.Accepted+c.Limited != 5 || c.Limited == 0 || c.Accepted < 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestJudge: too many requests, calls that are not done, and calls that are executed twice are missed.
func TestJudge(t *testing.T) {
	right := row{calls: 600, done: 600, count: count{Requests: 1200, Accepted: 600}}
	storm, lost, twice := right, right, right
	storm.Requests, lost.done, twice.Accepted = 1201, 599, 601
	if missed := judge([]row{right}); len(missed) > 0 {
		t.Errorf("%s", missed)
	}
	if missed := judge([]row{storm, lost, twice}); len(missed) != 3 {
		t.Errorf("%s", missed)
	}
}
