// The attacks live in a module of their own: they run for minutes, and apart from the tests
// of the packages.
module github.com/seed-30fe103d/throttler/test/security

go 1.26.0

toolchain go1.26.9

require golang.org/x/net v0.62.0

require golang.org/x/text v0.43.0 // indirect
