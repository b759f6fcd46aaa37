package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestRouterAgreesWithTheScheduler: a demand that is put together from the values of a
// router, by the names of limits, is the demand of the call in a scheduler.
func TestRouterAgreesWithTheScheduler(t *testing.T) {
	var reused Route
	u := newUpstream([]Limit{
		{Name: "all", Calls: 100, Window: sec},
		{Name: "key", PerKey: `query("k")`, Cost: `query("n") == "3" ? 3 : 1`, Calls: 5, Window: sec},
		{Name: "post", When: `method == "POST"`, PerKey: `path`, Calls: 5, Window: sec},
		{Name: "dear", When: `query("k") != "b"`, Cost: `2`, Concurrency: 4},
	})
	u.ShareBy, u.Weights = `header("X-Flow")`, map[string]float64{"gold": 2}
	router, err := NewRouter("api", u)
	check(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for range 200 {
		in := upstream.NewInput(&upstream.Request{
			Method: pick("GET", "POST"), Target: fmt.Sprintf("/%s?k=%s&n=%s", pick("x", "y"), pick("a", "b"), pick("1", "3")),
			Header: http.Header{"X-Flow": {pick("gold", "Gold", "Tin")}},
		})
		route := &Route{Keys: map[string]string{}, Costs: map[string]int{}}
		for i, l := range router.Limits()[1:] {
			under, err := router.Covers(i+1, in)
			check(t, err)
			if under {
				route.Keys[l.Name], err = router.Key(i+1, in)
				check(t, err)
				route.Costs[l.Name], err = router.Cost(i+1, in)
				check(t, err)
			}
		}
		route.Flow, err = router.Flow(in)
		check(t, err)
		got, err := router.Demand(route)
		want, refused := router.sv.demand(in, false)
		if err != nil || refused != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, %v: the router has %+v, the scheduler %+v", err, refused, got, want)
		}
		if again, err := router.Demand(router.sv.routeOf(want)); err != nil || !reflect.DeepEqual(again, want) {
			t.Fatalf("%v: the route of %+v has the demand %+v", err, want, again)
		}
		router.sv.fill(&reused, want)
		if again, err := router.Demand(&reused); err != nil || !reflect.DeepEqual(again, want) {
			t.Fatalf("%v: the route of %+v, in maps that are used again, has the demand %+v", err, want, again)
		}
	}
}

func TestRouter(t *testing.T) {
	router, err := NewRouter("api", newUpstream(perSecond(2)))
	check(t, err)
	if _, err := router.Demand(&Route{Keys: map[string]string{"app": ""}, Costs: map[string]int{"app": 3}}); reason(err) != CostTooHigh {
		t.Errorf("a cost above the limit: %v", err)
	}
	if limits := router.Limits(); len(limits) != 2 || limits[0].Name != ConcurrencyLimit || limits[1].Calls != 2 {
		t.Errorf("limits %+v, want the concurrency and 2 calls", limits)
	}
	if router.Upstream().Concurrency != Defaults().Concurrency || router.Weight("tin") != 1 {
		t.Errorf("concurrency %d, weight %v; want the defaults", router.Upstream().Concurrency, router.Weight("tin"))
	}
	if _, err := NewRouter("api", newUpstream([]Limit{{Name: "app", When: "1 +", Calls: 1, Window: sec}})); err == nil {
		t.Error("a fault of an expression is not found")
	}
}

func newUpstream(limits []Limit) Upstream {
	u := Upstream{Limits: limits}
	u.URL = "http://api.test"
	return u
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
