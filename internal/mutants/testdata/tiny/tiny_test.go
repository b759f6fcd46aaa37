package tiny

import (
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
