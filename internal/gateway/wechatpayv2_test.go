package gateway

import (
	"crypto/md5"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// The platform knows the merchant's signature, refunds a number once, and takes the payment of a
// buyer at the second query.
func TestWeChatPayV2(t *testing.T) {
	d := NewWeChatPayV2(WeChatPayV2Config{Merchant: "190", Key: "k", Fault: func(path string, n int) Fault {
		if path == "/pay/micropay" {
			return Fault{Answer: UnknownError, Executed: true}
		}
		return Fault{}
	}})
	send := func(path, signed, more string) string {
		sum := md5.Sum([]byte("mch_id=190&nonce_str=n&" + signed + "&key=k"))
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader("<xml><mch_id>190</mch_id><nonce_str>n</nonce_str>"+more+fmt.Sprintf("<sign>%X</sign></xml>", sum))))
		return w.Body.String()
	}
	const refund, order = "<out_refund_no>R1</out_refund_no>", "<out_trade_no>T1</out_trade_no>"
	for _, tt := range []struct{ path, signed, more, want string }{
		{"/secapi/pay/refund", "out_refund_no=R2", refund, "签名失败"},
		{"/pay/refundquery", "out_refund_no=R1", refund, "REFUNDNOTEXIST"},
		{"/secapi/pay/refund", "out_refund_no=R1", refund, "50R1"},
		{"/secapi/pay/refund", "out_refund_no=R1", refund, "50R1"},
		{"/pay/refundquery", "out_refund_no=R1", refund, "SUCCESS"},
		{"/pay/orderquery", "out_trade_no=T1", order, "ORDERNOTEXIST"},
		{"/pay/micropay", "out_trade_no=T1", order, "USERPAYING"},
		{"/pay/orderquery", "out_trade_no=T1", order, "<trade_state><![CDATA[USERPAYING]]>"},
		{"/pay/orderquery", "out_trade_no=T1", order, "<trade_state><![CDATA[SUCCESS]]>"},
		{"/secapi/pay/reverse", "out_trade_no=T1", order, "<recall><![CDATA[N]]>"},
		{"/pay/orderquery", "out_trade_no=T1", order, "<trade_state><![CDATA[REVOKED]]>"},
	} {
		if got := send(tt.path, tt.signed, tt.more); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.path, got, tt.want)
		}
	}
	if paid, refunded := d.Payments(), d.Refunds(); paid["T1"] != 1 || refunded["R1"] != 1 || d.Arrivals("/secapi/pay/refund") != 2 {
		t.Errorf("paid %v, refunded %v", paid, refunded)
	}
}
