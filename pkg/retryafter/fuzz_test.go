package retryafter

import (
	"math/big"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var plainNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// modelNumber is Parse for numbers, in fractions without rounding errors. Ok is false for
// texts that are no number.
func modelNumber(text string, now time.Time) (wait time.Duration, ok bool) {
	if text = strings.TrimSpace(text); !plainNumber.MatchString(text) {
		return 0, false
	}
	n, _ := new(big.Rat).SetString(text)
	present := new(big.Rat).SetFrac64(now.UnixNano(), int64(time.Second))
	bound := new(big.Rat).SetInt64(int64(Longest / time.Second))
	seconds := n
	for power := int64(1); power <= 1e9; power *= 1000 {
		away := new(big.Rat).Quo(n, new(big.Rat).SetInt64(power))
		away.Sub(away, present)
		if new(big.Rat).Abs(away).Cmp(bound) <= 0 {
			if seconds = away; seconds.Sign() < 0 {
				return 0, true
			}
			break
		}
	}
	if seconds.Cmp(bound) >= 0 {
		return Longest, true
	}
	millis := new(big.Rat).Mul(seconds, new(big.Rat).SetInt64(1000))
	up := new(big.Int).Add(millis.Num(), new(big.Int).Sub(millis.Denom(), big.NewInt(1)))
	return time.Duration(up.Div(up, millis.Denom()).Int64()) * time.Millisecond, true
}

// FuzzRetryAfter holds the promises for any fields: no panic, no negative wait, none beyond Longest,
// the same at each reading, numbers as the model reads them, and no plain value forgotten beside
// others.
func FuzzRetryAfter(f *testing.F) {
	names := []string{"Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Retry-In", "Ratelimit", "Ratelimit-Reset", "Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Remaining", "X-Ratelimit-Reset-After", "X-Ratelimit-Reset-Tokens", "X-Ratelimit-Remaining-Tokens", "Date"}
	for _, value := range []string{"120", "292.05", "1795950003", "1795950003250", "0.0000000001", "9223372036854775807", "99999999999999999999.5", "Sun, 29 Nov 2026 11:01:30 GMT", "2026-11-29T19:01:30+0800", `"day";r=0;t=30, "burst";r=1;t=2`, "limit=9, remaining=0, reset=30", "6m0s", "20ms", "5, Sun, 29 Nov 2026 11:01:30 GMT", "-1", "1e9", "2562047h47m16.854775807s"} {
		f.Add(uint8(0), value, uint8(5), "0", uint32(7), int64(1795950000), true)
	}
	f.Fuzz(func(t *testing.T, first uint8, value string, second uint8, other string, n uint32, unix int64, limited bool) {
		const century = 100 * 366 * 24 * 3600
		now := time.Unix(int64(uint64(unix)%century)+2*366*24*3600, int64(n%1e9))
		fields := http.Header{}
		fields.Add(names[int(first)%len(names)], value)
		fields.Add(names[int(second)%len(names)], other)
		wait := Wait(fields, now, limited)
		if wait < 0 || wait > Longest || wait%time.Millisecond != 0 && wait != Longest {
			t.Fatalf("%v: wait %v", fields, wait)
		}
		if again := Wait(fields, now, limited); again != wait {
			t.Fatalf("%v: %v, then %v", fields, wait, again)
		}
		if !limited && wait > Wait(fields, now, true) {
			t.Fatalf("%v: shorter if the answer limits", fields)
		}
		if left, known := Remaining(fields); left < 0 || left > 0 && !known || left != left {
			t.Fatalf("%v: remaining %v, %v", fields, left, known)
		}

		got, ok := Parse(value, now)
		if got < 0 || got > Longest || !ok && got != 0 {
			t.Fatalf("%q: %v, %v", value, got, ok)
		}
		if want, number := modelNumber(value, now); number && (!ok || got != want) {
			t.Fatalf("%q at %v: %v, %v; the model says %v", value, now, got, ok, want)
		}

		seconds := 1 + n%uint32(Longest/time.Second)
		at := now.Add(time.Duration(seconds) * time.Second)
		for _, plain := range []string{strconv.Itoa(int(seconds)), at.UTC().Format(http.TimeFormat), at.Format(time.RFC3339Nano), strconv.FormatInt(at.UnixMilli(), 10)} {
			least := at.Truncate(time.Second).Sub(now)
			if wait := Wait(http.Header{"Retry-After": {value, plain}}, now, limited); wait < least {
				t.Fatalf("Retry-After: %q and %q: %v, at least %v", value, plain, wait, least)
			}
			if wait := Wait(http.Header{"Retry-After": {plain}, "X-Ratelimit-Reset": {value}, "X-Ratelimit-Remaining": {other}}, now, limited); wait < least {
				t.Fatalf("Retry-After: %q beside a reset %q: %v, at least %v", plain, value, wait, least)
			}
		}
	})
}
