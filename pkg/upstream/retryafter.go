package upstream

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// maxRetryAfter is the longest accepted Retry-After.
const maxRetryAfter = 24 * time.Hour

// retryAfter returns the wait that an answer asks for: Retry-After, or else the
// reset of RateLimit fields with nothing remaining.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if v := header.Get("Retry-After"); v != "" {
		return seconds(v, header, now)
	}
	return min(rateLimitReset(header), maxRetryAfter)
}

// seconds reads both forms of Retry-After (RFC 9110, section 10.2.3):
// seconds, and a date, which is compared with the sender's own Date.
func seconds(v string, header http.Header, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(v, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // n is the greatest then
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}

// rateLimitReset reads draft-ietf-httpapi-ratelimit-headers. RateLimit is a list
// of policies with r (remaining) and t (seconds until the reset); those with
// nothing remaining count. The older fields are RateLimit-Remaining and
// RateLimit-Reset.
func rateLimitReset(header http.Header) time.Duration {
	var wait int64
	if list, err := httpsfv.UnmarshalList(header.Values("RateLimit")); err == nil {
		for _, member := range list {
			item, _ := member.(httpsfv.Item)
			if item.Params == nil {
				continue
			}
			left, some := item.Params.Get("r")
			reset, _ := item.Params.Get("t")
			if n, ok := left.(int64); !some || !ok || n > 0 {
				continue
			}
			if t, ok := reset.(int64); ok {
				wait = max(wait, t)
			}
		}
	}
	if wait == 0 && header.Get("RateLimit-Remaining") == "0" {
		wait, _ = strconv.ParseInt(header.Get("RateLimit-Reset"), 10, 31)
	}
	return time.Duration(min(max(0, wait), int64(maxRetryAfter/time.Second))) * time.Second
}
