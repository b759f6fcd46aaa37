module github.com/seed-30fe103d/throttler/bench/hop

go 1.26.0

toolchain go1.26.9

require (
	github.com/valyala/fasthttp v1.77.0
	golang.org/x/time v0.16.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/molecule-man/go-brrr v1.3.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
)
