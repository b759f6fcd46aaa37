package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// A merchant's third refund within the window is limited.
func Example() {
	const appID = "2021000000000001"
	app := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{
		Apps:         map[string]string{appID: app.Public},
		MethodLimits: map[string]gateway.Limit{gateway.Refund: {Calls: 2, Window: time.Hour}},
	})
	if err != nil {
		log.Fatal(err)
	}
	srv, err := gateway.Start("", g)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()

	client, err := alipay.New(appID, app.Private, true, alipay.WithProductionGateway(srv.URL+gateway.Path))
	if err != nil {
		log.Fatal(err)
	}
	if err := client.LoadAliPayPublicKey(g.PublicKey); err != nil {
		log.Fatal(err)
	}
	for _, trade := range []string{"order-1", "order-2", "order-3"} {
		rsp, err := client.TradeRefund(context.Background(), alipay.TradeRefund{
			OutTradeNo: trade, OutRequestNo: "refund-1", RefundAmount: "9.90",
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(trade, rsp.Code, cmp.Or(rsp.SubCode, rsp.Msg))
	}
	tally := g.Method(appID, gateway.Refund)
	fmt.Printf("%d arrivals, %d limited, most in a window %d, allowed %d\n",
		len(tally.Arrivals), tally.Limited, tally.Most(), tally.Limit.Calls)
	// Output:
	// order-1 10000 Success
	// order-2 10000 Success
	// order-3 40005 isv.method-call-limited
	// 3 arrivals, 1 limited, most in a window 3, allowed 2
}
