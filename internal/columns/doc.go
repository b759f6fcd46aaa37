// Package columns turns calls, permits, keys and records of the audit into columns of tables and
// back: the format of the stores in a file and in PostgreSQL.
//
// A [Row] is a call without its request and its response, which are each a [Content]. A [Codec]
// encrypts secrets if it has a key, and makes and checks the sum of each row. A [Clock]
// reads the time for a store.
package columns
