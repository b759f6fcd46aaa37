// The tests with real client libraries live in a module of their own, so that who
// imports Throttler does not import them.
module github.com/seed-30fe103d/throttler/test/sdk

go 1.26.0

toolchain go1.26.9

require (
	github.com/go-pay/gopay v1.5.115
	github.com/seed-30fe103d/throttler v0.0.0
	github.com/smartwalle/alipay/v3 v3.2.28
	github.com/smartwalle/nsign v1.0.9
	github.com/stripe/stripe-go/v85 v85.0.0
	github.com/wechatpay-apiv3/wechatpay-go v0.2.21
)

require (
	github.com/go-pay/crypto v0.0.1 // indirect
	github.com/go-pay/util v0.0.4 // indirect
	github.com/go-pay/xlog v0.0.3 // indirect
	github.com/go-pay/xtime v0.0.2 // indirect
	github.com/smartwalle/ncrypto v1.0.4 // indirect
	github.com/smartwalle/ngx v1.0.12 // indirect
	golang.org/x/crypto v0.39.0 // indirect
)

replace github.com/seed-30fe103d/throttler => ../..
