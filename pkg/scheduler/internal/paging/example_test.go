package paging_test

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/scheduler/internal/paging"
)

// An upstream has three calls on disk. A new call of higher priority goes before them and
// waits in memory; one of the same priority is left to the disk until its page is read.
func Example() {
	w := paging.NewWindow(3)
	page := w.Next()
	w.Done(page, paging.Position{Seq: 2}, false) // the page had two of them
	fmt.Println(w.Admit(paging.Row{Position: paging.Position{Priority: 5, Seq: 4}}))
	fmt.Println(w.Admit(paging.Row{Position: paging.Position{Seq: 5}}))
	fmt.Println(w.Next().From)
	// Output:
	// true
	// false
	// {0 0001-01-01 00:00:00 +0000 UTC 2}
}
