package ledger_test

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/ledger"
)

// A caller was told that a payment is done, of which the platform knows nothing.
func Example() {
	p := ledger.New(ledger.Dialects[0], 1, false)
	told := ledger.Told{Operation: ledger.Operation{Kind: ledger.Pay, Order: "B", Amount: 100, Tag: "c1"}, As: "done"}
	for _, fault := range p.Faults([]ledger.Told{told}, func(unit string) bool { return false }) {
		fmt.Println(fault)
	}
	// Output: TOLD done at 00.000: pay of pay B by c1: it was not executed
}
