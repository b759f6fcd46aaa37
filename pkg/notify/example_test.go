package notify_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/notify"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A stripe event is verified while it is fresh.
func ExampleNew() {
	os.Setenv("STRIPE_WEBHOOK_SECRET", "whsec_testsecretvaluefordocs00000000")
	v, err := notify.New(notify.Config{Kind: "stripe", Keys: []string{"env:STRIPE_WEBHOOK_SECRET"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	event := &upstream.Request{
		Method: "POST", Target: "/notify", Body: []byte(`{"id":"evt_1","type":"payment_intent.succeeded"}`),
		Header: http.Header{"Stripe-Signature": {"t=1790000000,v1=294dfeafa5b7c9d6efbdb7ad3e3ee540dcf4e94924ac0b65ac12b839971a120a"}},
	}
	notice, err := v.Verify(event, time.Unix(1790000060, 0))
	fmt.Println(notice.ID, err)
	_, err = v.Verify(event, time.Unix(1790003600, 0))
	fmt.Println(errors.Is(err, notify.ErrLate))
	// Output:
	// evt_1 <nil>
	// true
}
