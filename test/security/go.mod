// The attacks live in a module of their own: they run for minutes, and apart from the tests
// of the packages.
module github.com/seed-30fe103d/throttler/test/security

go 1.26.0

toolchain go1.26.9
