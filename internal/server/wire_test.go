package server

import (
	"fmt"
	"hash/fnv"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// fill sets each exported field of a value to one that differs from zero and depends on
// the names on the path to the field.
func fill(v reflect.Value, path string) {
	hash := fnv.New32()
	io.WriteString(hash, path)
	n := int(hash.Sum32()%10_000) + 1
	if at, ok := v.Addr().Interface().(*time.Time); ok {
		*at = time.Unix(int64(n), 0)
		return
	}
	if at, ok := v.Addr().Interface().(*api.Instant); ok {
		*at = api.At(time.Unix(int64(n), 0))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int16, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint8:
		v.SetUint(uint64(n%255 + 1))
	case reflect.Float64:
		v.SetFloat(float64(n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), fmt.Sprint(path, i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, path+".key")
		fill(value, path+".value")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.Anonymous && f.Type.Kind() == reflect.Struct:
				fill(v.Field(i), path)
			case f.IsExported() && !f.Anonymous:
				fill(v.Field(i), path+"."+f.Name)
			}
		}
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

func filled[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem(), "")
	return v
}

// TestWireLosesNothing converts values without a zero field: a field of internal/api has
// the value of the scheduler's field with its name.
func TestWireLosesNothing(t *testing.T) {
	call, route := filled[scheduler.Call](), filled[scheduler.Route]()
	wire := filled[api.Call]()
	wire.SignatureUntil = api.Instant{} // of the configuration
	wire.WaitingFor.TimeoutMs, wire.Unknown = call.WaitingFor.Timeout.Milliseconds(), apiUnknown(call.Pending)
	key, l := filled[scheduler.KeyStatus](), filled[scheduler.LimitStatus]()
	wireKey, wireLimit := filled[api.Key](), filled[api.Limit]()
	wireKey.WaitingPermits = key.Waiting
	wireLimit.Kind, wireLimit.Builtin, wireLimit.WindowMs, wireLimit.TimeZone, wireLimit.ResetsAt = api.Calendar, false, 0, "", api.Instant{}
	wireLimit.Permits, wireLimit.WaitingPermits, wireLimit.Keys = l.Calls, l.Waiting, convert(l.Keys, apiKey)
	wireLimit.Audit = api.Audit{Most: l.Most, Margin: l.Margin, HoldCost: l.HoldCost, Guards: apiGuards(l.GuardWins), Unanswered: l.Unanswered}
	upstream, wireUpstream := filled[scheduler.UpstreamStatus](), filled[api.Upstream]()
	upstream.URL, wireUpstream.URL = "https://hooks.example/canary", "https://hooks.example/…"
	for _, tt := range []struct {
		name      string
		got, want any
	}{
		{"call", *APICall(&call), wire},
		{"attempt", apiAttempt(filled[scheduler.Attempt]()), filled[api.Attempt]()},
		{"upstream", apiUpstream(upstream), wireUpstream},
		{"limit", apiLimit(time.Now(), l, scheduler.Upstream{}), wireLimit},
		{"key", apiKey(key), wireKey},
		{"route", *apiRoute(&route), filled[api.Route]()},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", tt.name, tt.got, tt.want)
		}
	}
	attempt := filled[scheduler.Attempt]()
	event := filled[scheduler.Event]()
	event.Kind, event.Call, event.Attempt = scheduler.EventAccepted, &call, &attempt
	e, apiAttempt := apiEvent(event, time.Unix(1, 0)), apiAttempt(attempt)
	want := api.Event{
		At: api.At(time.Unix(1, 0)), Event: api.EventAccepted, Call: call.ID, Numbers: call.Numbers, Upstream: call.Upstream, State: api.State(call.State), Priority: int(call.Priority),
		Attempt: &apiAttempt, Reason: string(event.Reason), Limit: event.Limit, Key: event.Key, Until: api.At(event.Until), NotBefore: api.At(call.NotBefore),
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("event: got\n%+v\nwant\n%+v", e, want)
	}
}

// TestWireKeepsNil: null stays null and [] stays [].
func TestWireKeepsNil(t *testing.T) {
	if APICall(nil) != nil || apiRoute(nil) != nil || APICall(&scheduler.Call{}).Attempts != nil {
		t.Error("nil became a value")
	}
	if a := APICall(&scheduler.Call{Attempts: []scheduler.Attempt{}}).Attempts; a == nil || len(a) != 0 {
		t.Errorf("no attempts became %v", a)
	}
}

// TestWireWords compares the words that internal/api and the scheduler both define.
func TestWireWords(t *testing.T) {
	states := []api.State{api.Waiting, api.Sending, api.Done, api.Failed, api.Unknown, api.Expired, api.Exhausted, api.Cancelled}
	for i, s := range scheduler.States {
		if api.State(s) != states[i] || states[i].Finished() != s.Finished() {
			t.Errorf("state %s of the scheduler is %s in internal/api", s, states[i])
		}
	}
	for kind, want := range map[scheduler.EventKind]string{
		scheduler.EventAccepted: api.EventAccepted, scheduler.EventRefused: api.EventRefused, scheduler.EventSending: api.EventSending,
		scheduler.EventAttempt: api.EventAttempt, scheduler.EventWaiting: api.EventWaiting, scheduler.EventPaused: api.EventPaused,
		scheduler.EventEnded: api.EventEnded, scheduler.EventResumed: api.EventResumed,
	} {
		if kind.String() != want {
			t.Errorf("event %s of the scheduler is %s in internal/api", kind, want)
		}
	}
	if api.ConcurrencyLimit != scheduler.ConcurrencyLimit {
		t.Errorf("the concurrency limit is %s, and %s in internal/api", scheduler.ConcurrencyLimit, api.ConcurrencyLimit)
	}
}
