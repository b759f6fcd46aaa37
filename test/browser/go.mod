// The dashboard is tested in a browser in a module of its own: the driver of the browser
// brings the types of its whole protocol.
module github.com/seed-30fe103d/throttler/test/browser

go 1.26.0

toolchain go1.26.9

require (
	github.com/chromedp/cdproto v0.159.2
	github.com/chromedp/chromedp v0.23.0
	github.com/seed-30fe103d/throttler v0.0.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace github.com/seed-30fe103d/throttler => ../..
