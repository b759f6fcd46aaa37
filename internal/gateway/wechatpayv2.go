package gateway

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// WeChatPayV2Config describes a WeChatPayV2. All but Fault is required.
type WeChatPayV2Config struct {
	Merchant, Key string // mch_id and its API key
	// Fault, if set, is called for the n-th rightly signed call of a path, from 1. With
	// UnknownError the answer to a payment is USERPAYING, and if Executed is set too, the buyer
	// types the password at the second query; any other answer is SYSTEMERROR.
	Fault func(path string, n int) Fault
}

// A WeChatPayV2 is an [http.Handler] with the XML API of WeChat Pay v2 for code payments and
// refunds. It verifies signatures, and counts executed payments and refunds. It is safe for
// concurrent use.
type WeChatPayV2 struct {
	config WeChatPayV2Config

	mu       sync.Mutex
	arrivals map[string]int // signed calls, by path
	payments map[string]int // by order
	refunds  map[string]int // by their number
	fees     map[string]string
	orders   map[string]*order
}

type order struct {
	fee, state string
	queries    int
}

// NewWeChatPayV2 returns a platform without orders.
func NewWeChatPayV2(c WeChatPayV2Config) *WeChatPayV2 {
	return &WeChatPayV2{config: c, arrivals: make(map[string]int), payments: make(map[string]int), refunds: make(map[string]int), fees: make(map[string]string), orders: make(map[string]*order)}
}

func (p *WeChatPayV2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	answer, fault := p.handle(r.URL.Path, raw)
	w.Header().Set("Content-Type", "text/xml")
	respond(w, r, http.StatusOK, []byte(written(answer)), fault, 0)
}

// elements reads a flat XML text.
func elements(raw []byte) map[string]string {
	var root struct {
		All []struct {
			XMLName xml.Name
			Text    string `xml:",chardata"`
		} `xml:",any"`
	}
	if xml.NewDecoder(bytes.NewReader(raw)).Decode(&root) != nil {
		return nil
	}
	of := make(map[string]string)
	for _, e := range root.All {
		of[e.XMLName.Local] = e.Text
	}
	return of
}

func written(of map[string]string) string {
	var b strings.Builder
	b.WriteString("<xml>")
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "<%s><![CDATA[%s]]></%s>", name, of[name], name)
	}
	b.WriteString("</xml>")
	return b.String()
}

// signed reports whether the signature of a request is the merchant's.
func (p *WeChatPayV2) signed(of map[string]string) bool {
	var h hash.Hash = md5.New()
	if of["sign_type"] == "HMAC-SHA256" {
		h = hmac.New(sha256.New, []byte(p.config.Key))
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if name != "sign" && of[name] != "" {
			io.WriteString(h, name+"="+of[name]+"&")
		}
	}
	io.WriteString(h, "key="+p.config.Key)
	return of["mch_id"] == p.config.Merchant && of["nonce_str"] != "" && strings.EqualFold(of["sign"], hex.EncodeToString(h.Sum(nil)))
}

func (p *WeChatPayV2) handle(path string, raw []byte) (map[string]string, Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := elements(raw)
	if !p.signed(of) {
		return map[string]string{"return_code": "FAIL", "return_msg": "签名失败"}, Fault{}
	}
	p.arrivals[path]++
	var fault Fault
	if p.config.Fault != nil {
		fault = p.config.Fault(path, p.arrivals[path])
	}
	answer := map[string]string{"return_code": "SUCCESS", "result_code": "SUCCESS"}
	if fault.executes() {
		for name, text := range p.execute(path, of, fault.Answer == UnknownError) {
			answer[name] = text
		}
	}
	if fault.Answer == UnknownError {
		answer = map[string]string{"err_code": "SYSTEMERROR"}
		if path == "/pay/micropay" {
			answer["err_code"] = "USERPAYING"
		}
	}
	if answer["err_code"] != "" {
		answer["return_code"], answer["result_code"] = "SUCCESS", "FAIL"
	}
	return answer, fault
}

// execute makes a payment, a reverse or a refund, each once, or answers a query.
func (p *WeChatPayV2) execute(path string, of map[string]string, paying bool) map[string]string {
	number := of["out_trade_no"]
	o := p.orders[number]
	switch {
	case path == "/pay/micropay" && o != nil:
		return map[string]string{"err_code": "ORDERPAID"}
	case path == "/pay/micropay" && paying:
		p.orders[number] = &order{of["total_fee"], "USERPAYING", 0}
	case path == "/pay/micropay":
		p.orders[number] = &order{of["total_fee"], "SUCCESS", 0}
		p.payments[number]++
		return map[string]string{"transaction_id": "42" + number, "total_fee": of["total_fee"]}
	case path == "/secapi/pay/refund":
		if p.refunds[of["out_refund_no"]] == 0 { // a number refunds once
			p.refunds[of["out_refund_no"]], p.fees[of["out_refund_no"]] = 1, of["refund_fee"]
		}
		return map[string]string{"refund_id": "50" + of["out_refund_no"], "out_refund_no": of["out_refund_no"]}
	case path == "/pay/refundquery" && p.refunds[of["out_refund_no"]] == 0:
		return map[string]string{"err_code": "REFUNDNOTEXIST"}
	case path == "/pay/refundquery":
		return map[string]string{"refund_status_0": "SUCCESS", "out_refund_no_0": of["out_refund_no"], "refund_fee_0": p.fees[of["out_refund_no"]]}
	case o == nil:
		return map[string]string{"err_code": "ORDERNOTEXIST"}
	case path == "/pay/orderquery":
		if o.queries++; o.state == "USERPAYING" && o.queries == 2 {
			o.state = "SUCCESS"
			p.payments[number]++
		}
		return map[string]string{"trade_state": o.state, "total_fee": o.fee}
	case path == "/secapi/pay/reverse":
		o.state = "REVOKED"
		return map[string]string{"recall": "N"}
	}
	return nil
}

// Payments counts the executed payments by their order.
func (p *WeChatPayV2) Payments() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.payments)
}

// Refunds counts the executed refunds by their number.
func (p *WeChatPayV2) Refunds() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.refunds)
}

// Arrivals returns the number of rightly signed calls of a path.
func (p *WeChatPayV2) Arrivals(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrivals[path]
}
