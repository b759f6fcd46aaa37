package main

import (
	"fmt"
	"os/exec"
)

// peers says why the job queues that people know are not in this run.
func peers() {
	for _, p := range []struct{ name, server string }{{"asynq", "redis-server"}, {"River", "postgres"}} {
		why := "its comparison is not written yet"
		if _, err := exec.LookPath(p.server); err != nil {
			why = "there is no " + p.server + " on this machine"
		}
		fmt.Printf("%s: NOT MEASURED: %s\n", p.name, why)
	}
}
