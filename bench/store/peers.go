package main

import (
	"fmt"
	"os/exec"
)

// peers says which peers could not be measured here.
func peers(string) {
	for _, p := range []struct{ name, server string }{{"asynq", "redis-server"}, {"River", "postgres"}} {
		if _, err := exec.LookPath(p.server); err != nil {
			fmt.Printf("%s: NOT MEASURED: there is no %s on this machine\n", p.name, p.server)
		}
	}
}
