package tiny

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestSum(t *testing.T) {
	if got := sum([]int{2, 3, -5, 4, 9, 6}, 9); got != 6 {
		t.Errorf("sum = %d", got)
	}
	if got := sum([]int{8}, 9); got != 8 {
		t.Errorf("sum = %d", got)
	}
}

func TestCounter(t *testing.T) {
	var c counter
	c.add(3)
	c.add(1)
	if c.n != 2 || c.total != 20 || wait != 2*time.Second {
		t.Errorf("%+v, %v", c, wait)
	}
}

func TestSign(t *testing.T) {
	if sign(3) != 1 || sign(2) != 0 || sign(-3) != -1 {
		t.Error("sign")
	}
	if ask(func() bool { return true }) != 8 || ask(func() bool { return false }) != 0 {
		t.Error("ask")
	}
}

// TestNoMoreFiles runs where no file can be opened, as does a test that has given up its rights.
func TestNoMoreFiles(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open("."); err == nil {
		f.Close()
		t.Fatal("a file can be opened")
	}
	sign(-3)
}
