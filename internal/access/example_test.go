package access_test

import (
	"context"
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/access"
)

// An operation asks its context for the caller.
func Example() {
	ctx := access.With(context.Background(), access.Caller{Name: "shop", Role: access.Submitter, Via: "token"})
	caller := access.From(ctx)
	fmt.Println(caller.Name, caller.May(access.Submit), caller.May(access.Operate), caller.Own())
	// Output: shop true false true
}
