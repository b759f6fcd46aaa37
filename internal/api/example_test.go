package api_test

import (
	"encoding/json"
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A client writes a submission and reads the call that comes back.
func Example() {
	submission, err := json.Marshal(api.Submission{Upstream: "pay", Method: "POST", Target: "/refunds", Priority: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(submission))

	response := `{"id":"c1","upstream":"pay","state":"waiting","priority":5,"async":true,"durable":true,
		"accepted_at":"2026-11-21T09:00:00Z","eta":"2026-11-21T09:00:03Z","attempts":[],
		"waiting_for":{"limit":"app","key":"a","until":"2026-11-21T09:00:01Z","ahead":20}}`
	var call api.Call
	if err := json.Unmarshal([]byte(response), &call); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s is %s: %d permits of limit %s are ahead\n", call.ID, call.State, call.WaitingFor.Ahead, call.WaitingFor.Limit)
	// Output:
	// {"upstream":"pay","method":"POST","target":"/refunds","priority":5}
	// c1 is waiting: 20 permits of limit app are ahead
}
