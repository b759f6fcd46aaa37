package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/gateway"
)

const apiKey = "192006250b4c09247ec02edce69f6a2d"

// v2 sends XML to the sidecar.
func (p *process) v2(t *testing.T, path, prefer, body string) answer {
	t.Helper()
	return send(t, http.MethodPost, p.data+path, "<xml><appid>wx1</appid><mch_id>190</mch_id>"+body+"</xml>", "Content-Type", "text/xml", "Prefer", prefer)
}

// TestWechatPayV2: of a payment whose buyer types the password, and of a refund without an
// answer, the sidecar asks a platform that verifies signatures, by the queries of the preset and with
// signatures of its own. Each is executed once, also if the sidecar is killed meanwhile.
func TestWechatPayV2(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", kill), func(t *testing.T) {
			t.Parallel()
			platform := gateway.NewWeChatPayV2(gateway.WeChatPayV2Config{Merchant: "190", Key: apiKey, Fault: func(path string, n int) gateway.Fault {
				switch {
				case path == "/pay/micropay" && n == 1:
					return gateway.Fault{Answer: gateway.UnknownError, Executed: true}
				case path == "/secapi/pay/refund" && n == 1:
					return gateway.Fault{Answer: gateway.Cut, Executed: true}
				case kill && path == "/pay/orderquery" && n == 1: // the sidecar is killed while it waits
					return gateway.Fault{Answer: gateway.Hang}
				}
				return gateway.Fault{}
			}})
			dir := t.TempDir()
			key := filepath.Join(dir, "api.key")
			if err := os.WriteFile(key, []byte(apiKey), 0o600); err != nil {
				t.Fatal(err)
			}
			yaml := oneUpstream(filepath.Join(dir, "throttler.db"), "alipay", serve(t, platform), fmt.Sprintf(`
    preset: wechatpay-v2
    max_wait: 2s
    idempotent: ""
    signer: {kind: wechatpay-v2, key: 'file:%s', merchant: "190"}
%s`, key, quickQueries(t, "wechatpay-v2")))
			p := launch(t, yaml)
			const pay, refund = "<out_trade_no>T1</out_trade_no><total_fee>100</total_fee><auth_code>13</auth_code>", "<out_trade_no>T1</out_trade_no><out_refund_no>R1</out_refund_no><total_fee>100</total_fee><refund_fee>40</refund_fee>"
			id := p.v2(t, "/pay/micropay", "respond-async", pay).call()
			if kill {
				p.until(t, "asking", func() bool { return platform.Arrivals("/pay/orderquery") == 1 })
				p.kill9()
				p = launch(t, yaml)
			}
			p.until(t, "done with the payment", func() bool { return p.call(id).State == api.Done })
			refunded := p.v2(t, "/secapi/pay/refund", "respond-async", refund).call()
			p.until(t, "done with the refund", func() bool { return p.call(refunded).State == api.Done })

			again, other := p.v2(t, "/pay/micropay", "", pay), p.v2(t, "/pay/micropay", "", strings.Replace(pay, "100", "200", 1))
			if again.call() != id || other.outcome() != "not_executed" || !strings.Contains(other.body, "<return_code>FAIL</return_code>") || !strings.Contains(other.body, "<err_code>PARAM_ERROR</err_code>") {
				t.Errorf("again: %+v; of another sum: %+v", again, other)
			}
			if reversed := p.v2(t, "/secapi/pay/reverse", "", "<out_trade_no>T2</out_trade_no>"); reversed.outcome() != "unknown" {
				t.Errorf("the reverse of an order that does not exist is %+v", reversed)
			}
			if late := p.v2(t, "/pay/micropay", "", strings.Replace(pay, "T1", "T2", 1)); late.outcome() != "not_executed" {
				t.Errorf("a payment after its reverse is %+v", late)
			}
			if n, paid, refunded := platform.Arrivals("/pay/micropay"), platform.Payments(), platform.Refunds(); n != 1 || len(paid) != 1 || paid["T1"] != 1 || len(refunded) != 1 || refunded["R1"] != 1 {
				t.Errorf("%d payments sent, paid %v, refunded %v", n, paid, refunded)
			}
			if strings.Contains(p.log.String(), apiKey) {
				t.Error("the API key is in the log")
			}
		})
	}
}
