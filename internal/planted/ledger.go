package main

import "slices"

// ledgerBugs are bugs of the engine that other tests see by their cases: the ledgers of the
// platforms must see them too.
var ledgerBugs = append(again([]string{
	"a query ends the doubt",
	"a repeat is a new call",
	"a new payment is taken after the cancel",
	"a payment on disk goes after its cancel",
	"a cancel is noted in memory alone",
	"a new payment erases the cancel",
	"forget the intent",
}, ledgers),
	bug{"a cancel is noted after its first byte", "pkg/scheduler/attempt.go",
		"	if ends := a.call.identities.toEnd(); ends != \"\" {\n", "	if ends := a.call.identities.toEnd(); ends != \"\" && a.intent.Last().N > 1 {\n", ledgers},
	bug{"a payment whose answer was lost is made anew", "internal/columns/keys.go",
		"	case state == scheduler.Cancelled, state == scheduler.Expired, state == scheduler.Exhausted:\n", "	case state == scheduler.Unknown, state == scheduler.Cancelled, state == scheduler.Expired, state == scheduler.Exhausted:\n", ledgers},
)

var ledgers = []string{"-run", "TestMoney", "-platform", "alipay", "-schedules", "600"}

// again returns the bugs of these names, to be looked for by other tests.
func again(names, args []string) (all []bug) {
	for _, bugs := range [][]bug{moneyBugs, identityBugs, storeBugs} {
		for _, b := range bugs {
			if slices.Contains(names, b.name) {
				b.args = args
				all = append(all, b)
			}
		}
	}
	return all
}
