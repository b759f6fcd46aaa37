package scheduler

import "net/http"

// A Response is an upstream's answer as it is kept.
type Response struct {
	Status    int
	Headers   http.Header
	Body      []byte
	Truncated bool // Body is only the beginning
}

// size is the number of bytes that a kept answer holds.
func (r *Response) size() int64 {
	if r == nil {
		return 0
	}
	return int64(len(r.Body)) + headerSize(r.Headers)
}

func headerSize(h http.Header) int64 {
	n := 0
	for name, values := range h {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return int64(n)
}
