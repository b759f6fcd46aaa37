package preview

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestRouter: a route has one demand, and the upstream counts neither the concurrency nor
// the limits of failures.
func TestRouter(t *testing.T) {
	routers, err := newRouters(configOf(scheduler.Upstream{Limits: []scheduler.Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "failed", Calls: 5, Window: sec, Counts: []upstream.Outcome{upstream.Failed}},
		{Name: "done", Calls: 5, Window: sec, Counts: []upstream.Outcome{upstream.Done}},
		{Name: "other", Calls: 5, Window: sec},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	r := routers[0]
	route := &scheduler.Route{Keys: map[string]string{"app": "a", "failed": "b", "done": "c"}, Costs: map[string]int{"app": 3}}
	d, err := r.demand(route)
	if err != nil {
		t.Fatal(err)
	}
	app, failed, done := quota.Need{Limit: 1, Key: "a", Cost: 3}, quota.Need{Limit: 2, Key: "b", Cost: 1}, quota.Need{Limit: 3, Key: "c", Cost: 1}
	if want := []quota.Need{{Cost: 1}, app, failed, done}; !reflect.DeepEqual(d.Needs, want) {
		t.Errorf("the call takes %+v, want %+v", d.Needs, want)
	}
	if want := []quota.Need{app, done}; !reflect.DeepEqual(d.counted, want) {
		t.Errorf("the upstream counts %+v, want %+v", d.counted, want)
	}
	if again, _ := r.demand(route); again != d {
		t.Error("the route has a second demand")
	}
	for i := range maxDemands + 1 {
		if _, err := r.demand(&scheduler.Route{Keys: map[string]string{"app": fmt.Sprint(i)}}); err != nil || len(r.known) > maxDemands {
			t.Fatalf("%d demands are kept, at most %d may be: %v", len(r.known), maxDemands, err)
		}
	}
}
