package retryafter

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 29, 11, 0, 0, 0, time.UTC) // 1795950000

// of makes fields of name: value lines.
func of(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

const (
	ms  = time.Millisecond
	sec = time.Second
	day = 24 * time.Hour
)

// TestWait: each row is the fields of an answer that limits, with their source.
func TestWait(t *testing.T) {
	for _, tt := range []struct {
		fields http.Header
		want   time.Duration
		source string
	}{
		{of(), 0, "nginx limit_req, HAProxy deny: no field"},
		// Retry-After
		{of("Retry-After: 120"), 120 * sec, "RFC 9110, 10.2.3"},
		{of("Retry-After:  2 "), 2 * sec, "optional white space, RFC 9110, 5.5"},
		{of("Retry-After: 86400"), day, "svix/svix-webhooks 2199"},
		{of("Retry-After: 2.0"), 2 * sec, "Shopify; MONEI/Shopify-api-node 135"},
		{of("Retry-After: 292.05"), 292050 * ms, "getsentry/sentry 7919"},
		{of("Retry-After: 1.963"), 1963 * ms, "rate-limiter-flexible's README"},
		{of("Retry-After: 0.0001"), ms, "rounded up, not off"},
		{of("Retry-After: 0.2500000000001"), 251 * ms, "rounded up behind the ninth place"},
		{of("Retry-After: 0"), 0, "koa-ratelimit in the last second"},
		{of("Retry-After: 0", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795950001"), sec, "koa-ratelimit: the reset says more than a 0 that was cut off"},
		{of("Retry-After: Sun, 29 Nov 2026 11:01:30 GMT"), 90 * sec, "RFC 9110, 5.6.7: IMF-fixdate"},
		{of("Retry-After: Sunday, 29-Nov-26 11:01:30 GMT"), 90 * sec, "RFC 9110, 5.6.7: RFC 850"},
		{of("Retry-After: Sun Nov 29 11:01:30 2026"), 90 * sec, "RFC 9110, 5.6.7: asctime"},
		{of("Retry-After: Sun, 29 Nov 2026 11:01:30 GMT", "Date: Sun, 29 Nov 2026 11:01:00 GMT"), 30 * sec, "the platform's clock is ahead"},
		{of("Retry-After: Sun, 29 Nov 2026 11:00:03 UTC"), 3 * sec, "sethvargo/go-limiter"},
		{of("Retry-After: Sun, 29 Nov 2026 11:01:30 +0000"), 90 * sec, "denoland/std 7299"},
		{of("Retry-After: Sun, 29 Nov 2026 19:01:30 +0800"), 90 * sec, "eth-cscs/pyfirecrest 118"},
		{of("Retry-After: 29 Nov 2026 11:01:30 GMT"), 90 * sec, "RFC 5322, 3.3, without the day"},
		{of("Retry-After: 2026-11-29T11:01:30Z"), 90 * sec, "RFC 3339"},
		{of("Retry-After: 2026-11-29T19:01:30.250+08:00"), 90250 * ms, "RFC 3339 with an offset and a fraction"},
		{of("Retry-After: 2026-11-29T19:01:30+0800"), 90 * sec, "ISO 8601"},
		{of("Retry-After: 20261129T110130Z"), 90 * sec, "ISO 8601, basic"},
		{of("Retry-After: 2026-11-29 11:01:30Z"), 90 * sec, "ISO 8601 with a space"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2026-11-29T11:02Z"), 120 * sec, "developer.atlassian.com, Jira: to the minute"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Remaining: 890", "X-RateLimit-Reset: 1795950840", "X-RateLimit-Reset: 1796036400"), 840 * sec, "Mangopay/mangopay2-java-sdk, RestTool.java: item by item"},
		{of("X-RateLimit-Remaining: 890, 0", "X-RateLimit-Reset: 1795950840, 1795953600"), 3600 * sec, "Mangopay/mangopay2-nodejs-sdk, lib/api.js: joined by commas"},
		{of("X-RateLimit-Remaining: 890, 12", "X-RateLimit-Reset: 1795950840, 1795953600"), 0, "the same, none is used up"},
		{of("X-RateLimit-Remaining: 0, 890", "X-RateLimit-Reset: 1795950840"), 840 * sec, "lists of two lengths: the least counts"},
		{of("Retry-After: 2026-11-29 11:01:30 UTC"), 90 * sec, "Ruby's Time#to_s in UTC"},
		{of("Retry-After: 2026-11-29 19:01:30 +0800"), 90 * sec, "Ruby's Time#to_s"},
		{of("Retry-After: 2026-11-29T11:01:30"), 0, "no offset: may be hours off"},
		{of("Retry-After: Sun, 29 Nov 2026 11:01:30 CST"), 0, "a name that two zones have"},
		{of("Retry-After: 29/11/2026 11:01:30"), 0, "a date that can be misread"},
		{of("Retry-After: Sun, 29 Nov 2026 10:59:00 GMT"), 0, "a past instant"},
		{of("Retry-After: 1795950003"), 3 * sec, "withcoral/coral 89: an epoch"},
		{of("Retry-After: 1795950003", "Date: Sun, 29 Nov 2026 11:00:01 GMT"), 2 * sec, "an epoch by the platform's clock"},
		{of("Retry-After: 1795950003.5"), 3500 * ms, "an epoch with a fraction, as Python's time.time()"},
		{of("Retry-After: 1795950003250"), 3250 * ms, "an epoch in ms, as JavaScript's Date.now()"},
		{of("Retry-After: 1795950003250000"), 3250 * ms, "an epoch in µs"},
		{of("Retry-After: 1795950003250000000"), 3250 * ms, "an epoch in ns, as Go's UnixNano"},
		{of("Retry-After: 1795949999"), 0, "an epoch that is past"},
		{of("Retry-After: 999999999"), Longest, "a number that is neither an instant nor a year"},
		{of("Retry-After: 9223372037"), Longest, "more than a duration holds"},
		{of("Retry-After: " + strings.Repeat("9", 100)), Longest, "more than any number holds"},
		{of("Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"), Longest, "never, as a date"},
		{of("Retry-After: 30s"), 30 * sec, "a duration"},
		{of("Retry-After: 5, 120"), 120 * sec, "two fields that a hop joined (RFC 9110, 5.3)"},
		{of("Retry-After: 120", "Retry-After: 5"), 120 * sec, "of a gateway and of the platform: the longest"},
		{of("Retry-After: 5, Sun, 29 Nov 2026 11:01:30 GMT, 7"), 90 * sec, "a list with a date, which has a comma"},
		{of("Retry-After: soon, 5"), 5 * sec, "a list with a value that is none"},
		{of("Retry-After: soon"), 0, "no value"},
		{of("Retry-After: "), 0, "empty"},
		{of("Retry-After: -1"), 0, "a sign"},
		{of("Retry-After: +5"), 0, "a sign"},
		{of("Retry-After: -5s"), 0, "a sign"},
		{of("Retry-After: 1e3"), 0, "an exponent"},
		{of("Retry-After: 0x10"), 0, "hexadecimal"},
		{of("Retry-After: 1_000"), 0, "Go's digit separator"},
		{of("Retry-After: NaN"), 0, "no number"},
		{of("Retry-After: Inf"), 0, "no number"},
		{of("Retry-After: .5"), 0, "no digit before the point"},
		{of("Retry-After: 5."), 0, "no digit behind the point"},
		{of("Retry-After: ٣"), 0, "no ASCII digit"},
		// finer fields
		{of("Retry-After-Ms: 2000"), 2 * sec, "OpenAI, Azure OpenAI"},
		{of("Retry-After-Ms: 1234.5"), 1235 * ms, "ms with a fraction"},
		{of("X-Ms-Retry-After-Ms: 250"), 250 * ms, "Azure Cosmos DB"},
		{of("Retry-After: 2", "Retry-After-Ms: 1234"), 1234 * ms, "OpenAI: Retry-After is retry-after-ms, rounded up"},
		{of("Retry-After: 1", "Retry-After-Ms: 1234"), 1234 * ms, "the same, cut off"},
		{of("Retry-After: 0", "Retry-After-Ms: 400"), 400 * ms, "the same below a second"},
		{of("Retry-After: 60", "Retry-After-Ms: 400"), 60 * sec, "they disagree: the longer one"},
		{of("Retry-After: 1", "Retry-After-Ms: 60000"), 60 * sec, "they disagree: the longer one"},
		{of("Retry-After: soon", "Retry-After-Ms: 400"), 400 * ms, "one cannot be read"},
		{of("Retry-After: 1", "X-Retry-In: 8ms"), 8 * ms, "Traefik: Retry-After is X-Retry-In, rounded up"},
		{of("X-Rate-Limit-Retry-After-Seconds: 59"), 59 * sec, "bucket4j's starter for Spring"},
		{of("X-Rate-Limit-Retry-After-Milliseconds: 1500"), 1500 * ms, "bucket4j's examples"},
		{of("Access-Control-Expose-Headers: Retry-After", "Via: 30"), 0, "a value that names the field"},
		// RateLimit
		{of(`RateLimit: "burst";r=0;t=7`), 7 * sec, "draft 8 to 10"},
		{of(`RateLimit: "day";r=900;t=3600, "burst";r=0;t=2`), 2 * sec, "the quota that is used up"},
		{of(`RateLimit: "day";r=0;t=3600`, `RateLimit: "burst";r=0;t=2`), time.Hour, "both are used up: the longest"},
		{of(`RateLimit: "day";r=1;t=3600`), 0, "something is left"},
		{of(`RateLimit: "day";t=3600`), 0, "r is missing, and another quota may be the one that is used up"},
		{of(`RateLimit: "day";r=0;t=1795950003`), 3 * sec, "an epoch for t"},
		{of(`RateLimit: "day";r=0;t=999999999999`), 0, "decades ahead"},
		{of(`RateLimit: ("a" "b"), "burst";r=0;t=7`), 7 * sec, "an inner list, which is no quota"},
		{of(`RateLimit: "day";r="none";t=5`), 0, "a remaining number that is none"},
		{of(`RateLimit: "day";r=0;t=3600`, "Retry-After: 3"), 3 * sec, "draft 10, 4.1: Retry-After takes precedence"},
		{of("RateLimit: limit=100, remaining=0, reset=30"), 30 * sec, "draft 7: express-rate-limit"},
		{of("RateLimit: limit=100, remaining=5, reset=30"), 0, "draft 7, something is left"},
		{of("RateLimit: limit=100, reset=30"), 30 * sec, "draft 7 without remaining, and the answer limits"},
		{of("RateLimit: ;;"), 0, "malformed"},
		{of("RateLimit-Remaining: 0", "RateLimit-Reset: 12"), 12 * sec, "drafts 3 to 6: express-rate-limit, tollbooth"},
		{of("RateLimit-Remaining: 5", "RateLimit-Reset: 12"), 0, "drafts 3 to 6, something is left"},
		{of("RateLimit-Remaining: 0", "RateLimit-Reset: 1795950002"), 2 * sec, "gitlab-org/gitlab 199738, DigitalOcean: an epoch"},
		{of("RateLimit-Remaining: 0", "RateLimit-Reset: 1795950002000"), 2 * sec, "tradegecko/smaug 41, RocketChat/docs-old 1358: in ms"},
		{of("RateLimit-Remaining: 0", "RateLimit-Reset: soon"), 0, "no value"},
		// vendors
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795950030"), 30 * sec, "GitHub, ulule/limiter, gin-rate-limit: an epoch"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795950030500"), 30500 * ms, "Upstash: in ms"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"), 30 * sec, "fiber, nest: seconds"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Sun, 29 Nov 2026 11:00:03 UTC"), 3 * sec, "sethvargo/go-limiter: a date"},
		{of("X-RateLimit-Remaining: 4000", "X-RateLimit-Reset: 1795953600"), 0, "GitHub's secondary limit: that reset is of another limit"},
		{of("X-RateLimit-Reset: 30"), 30 * sec, "no remaining number, and the answer limits"},
		{of("X-RateLimit-Remaining: -1", "X-RateLimit-Reset: 30"), 30 * sec, "a remaining number below 0 says nothing"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795949000"), 0, "a reset in the past"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2999999999"), 0, "a reset decades ahead"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: -30"), 0, "a sign"},
		{of("X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: 1795950900"), 900 * sec, "X: docs.x.com/fundamentals/rate-limits"},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795950001.2", "X-RateLimit-Reset-After: 0.65"), 1200 * ms, "Discord: both say it, the longest"},
		{of("X-RateLimit-Remaining: 3", "X-RateLimit-Reset-After: 0.65"), 0, "Discord: its remaining number has no -After"},
		{of("X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 6m0s", "X-RateLimit-Remaining-Tokens: 149000", "X-RateLimit-Reset-Tokens: 20ms"), 6 * time.Minute, "OpenAI: requests are used up"},
		{of("X-RateLimit-Remaining-Requests: 12", "X-RateLimit-Reset-Requests: 6m0s", "X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 20ms"), 20 * ms, "OpenAI: tokens are used up"},
		{of("X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 2m59.56s"), 179560 * ms, "Groq"},
		{of("Anthropic-RateLimit-Requests-Remaining: 0", "Anthropic-RateLimit-Requests-Reset: 2026-11-29T11:00:20Z"), 20 * sec, "Anthropic"},
		{of("X-HubSpot-RateLimit-Interval-Milliseconds: 10000", "X-HubSpot-RateLimit-Remaining: 0"), 0, "HubSpot: the length of a window is no reset"},
		{of("X-Amzn-RateLimit-Limit: 0.5"), 0, "Amazon SP-API: a rate"},
		{of("Reset: 30", "X-Reset: 30"), 0, "a reset of something else"},
	} {
		if got := Wait(tt.fields, now, true); got != tt.want {
			t.Errorf("%v: %v, want %v (%s)", tt.fields, got, tt.want, tt.source)
		}
	}
}

// TestWaitOfOtherAnswers: in an answer that does not limit, a reset tells nothing but that the
// quota is used up.
func TestWaitOfOtherAnswers(t *testing.T) {
	for _, tt := range []struct {
		fields http.Header
		want   time.Duration
	}{
		{of("Retry-After: 60"), 60 * sec}, // Azure's 202: Azure/go-autorest 538
		{of("X-RateLimit-Reset: 30"), 0},
		{of("RateLimit: limit=100, reset=30"), 0},
		{of("X-RateLimit-Remaining: 4000", "X-RateLimit-Reset: 30"), 0},
		{of("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"), 30 * sec},
	} {
		if got := Wait(tt.fields, now, false); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.fields, got, tt.want)
		}
	}
}

// TestUntrustedFields: values beyond the bounds are not read.
func TestUntrustedFields(t *testing.T) {
	many := strings.Split(strings.Repeat("1,", 1000)+"77", ",")
	for _, fields := range []http.Header{
		{"Retry-After": many},
		{"Retry-After": {strings.Join(many, ",")}},
		{"Retry-After": {"1", "2" + strings.Repeat(" ", 100) + "s"}},
	} {
		if got := Wait(fields, now, true); got != sec {
			t.Errorf("%.40v: %v, want 1s", fields, got)
		}
	}
}

func TestRemaining(t *testing.T) {
	for _, tt := range []struct {
		fields http.Header
		want   float64
		known  bool
	}{
		{of("X-RateLimit-Limit: 60", "X-RateLimit-Reset: 30"), 0, false},
		{of("X-RateLimit-Remaining: 0"), 0, true},
		{of("X-RateLimit-Remaining: 59"), 59, true},
		{of("X-Rate-Limit-Remaining: 3"), 3, true},
		{of("RateLimit-Remaining: 0"), 0, true},
		{of("X-RateLimit-Remaining-Minute: 4", "X-RateLimit-Remaining-Hour: 0"), 0, true}, // Kong
		{of("X-RateLimit-Remaining-Requests: 12", "X-RateLimit-Remaining-Tokens: 0"), 0, true},
		{of("Anthropic-RateLimit-Tokens-Remaining: 0"), 0, true},
		{of("X-HubSpot-RateLimit-Remaining: 0"), 0, true},
		{of("X-Ms-RateLimit-Remaining-Subscription-Reads: 11999"), 11999, true},
		{of(`RateLimit: "day";r=900;t=3600, "burst";r=0;t=2`), 0, true},
		{of("RateLimit: limit=100, remaining=7, reset=30"), 7, true},
		{of("RateLimit: limit=100, reset=30"), 0, false},
		{of("X-RateLimit-Remaining: 2.5"), 2.5, true},
		{of("X-RateLimit-Remaining: -1"), 0, false},
		{of("X-RateLimit-Remaining: none"), 0, false},
		{of("X-RateLimit-Remaining: NaN"), 0, false},
		{of("X-Remaining: 0", "X-RateLimit-Remainings: 0"), 0, false},
	} {
		if got, known := Remaining(tt.fields); got != tt.want || known != tt.known {
			t.Errorf("%v: %v, %v; want %v, %v", tt.fields, got, known, tt.want, tt.known)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"35", 35 * sec, true},
		{"0", 0, true},
		{"0s", 0, true},
		{"1m30s", 90 * sec, true},
		{"Sun, 29 Nov 2026 11:00:03 GMT", 3 * sec, true},
		{"Sun, 29 Nov 2026 10:00:00 GMT", 0, true},
		{"99999999999", Longest, true},
		{"1, 2", 0, false},
		{"", 0, false},
		{"soon", 0, false},
		{"-3", 0, false},
	} {
		if got, ok := Parse(tt.text, now); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %v, %v; want %v, %v", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}
