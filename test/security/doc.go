// Package security attacks the real binary: with raw sockets at its listeners, with hostile
// HTTP/1 and HTTP/2 upstreams behind it, and with hostile files beside it. make security
// runs it.
//
// A family of attacks is a table. Each row is one attack with its own assertion, and each
// family has at least as many rows as it promises. Beside the assertion of its row, a case
// fails if a request reaches an upstream malformed: with another Host than the configured
// one, with a second Content-Length, a Transfer-Encoding or a field of one connection, or
// with bytes beyond its announced length.
package security
