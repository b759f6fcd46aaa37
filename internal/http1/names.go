package http1

import "net/http"

// Names returns the names of a request's fields as its client has spelt them, where they differ from the keys of its Header, such
// as SOAPAction; nil if none does, and for a request of another server. It is for the handler.
func Names(r *http.Request) []string {
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil {
		return nil
	}
	return c.names
}
