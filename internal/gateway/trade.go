package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// tradeTotal is the paid amount of every trade, in fen.
const tradeTotal = 100_00

// A tradeID names a trade by the number that its callers use: the merchant's or the
// platform's.
type tradeID struct{ app, number string }

// A trade keeps its refunds by out_request_no, amounts in fen.
type trade struct {
	refunds  map[string]int64
	refunded int64 // sum
}

// bizContent has the fields of biz_content that the methods read.
type bizContent struct {
	OutTradeNo   string      `json:"out_trade_no"`
	TradeNo      string      `json:"trade_no"`
	OutRequestNo string      `json:"out_request_no"`
	RefundAmount json.Number `json:"refund_amount"`
}

// methods are the methods that the gateway executes, each with exclusive access to the trade.
var methods = map[string]func(*trade, bizContent) answer{
	Refund:      (*trade).refund,
	Query:       (*trade).query,
	RefundQuery: (*trade).refundQuery,
}

// trades are the trades of all apps. It is safe for concurrent use.
type trades struct {
	mu   sync.Mutex
	byID map[tradeID]*trade
}

// execute executes an admitted call. A call without usable content counts as not
// executed.
func (all *trades) execute(p params) (a answer, executed bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	var b bizContent
	if json.Unmarshal([]byte(cmp.Or(p["biz_content"], "{}")), &b) != nil {
		return illegalJSON, false
	}
	id := tradeID{p["app_id"], cmp.Or(b.OutTradeNo, b.TradeNo)}
	if id.number == "" {
		return businessFailed("ACQ.INVALID_PARAMETER", "参数无效"), false
	}
	t := all.byID[id]
	if t == nil {
		t = &trade{refunds: make(map[string]int64)}
		all.byID[id] = t
	}
	a = methods[p["method"]](t, b)
	if a.Code == "10000" {
		a.Msg, a.OutTradeNo, a.TradeNo = "Success", b.OutTradeNo, id.number
	}
	return a, true
}

func (t *trade) refund(b bizContent) answer {
	amount, ok := fen(b.RefundAmount.String())
	if !ok || amount <= 0 {
		return businessFailed("ACQ.INVALID_PARAMETER", "参数无效")
	}
	change := "N"
	switch before, again := t.refunds[b.request()]; {
	case !again:
		t.refunds[b.request()] = amount
		t.refunded += amount
		change = "Y"
	case before != amount:
		return businessFailed("ACQ.DISCORDANT_REPEAT_REQUEST", "请求信息不一致")
	}
	return answer{Code: "10000", FundChange: change, RefundFee: yuan(t.refunded)}
}

func (t *trade) query(bizContent) answer {
	status := "TRADE_SUCCESS"
	if t.refunded >= tradeTotal {
		status = "TRADE_CLOSED"
	}
	return answer{Code: "10000", TradeStatus: status, TotalAmount: yuan(tradeTotal)}
}

// refundQuery answers success without a status for an unknown refund, as the platform
// does.
func (t *trade) refundQuery(b bizContent) answer {
	a := answer{Code: "10000", OutRequestNo: b.request()}
	if amount, ok := t.refunds[b.request()]; ok {
		a.RefundStatus, a.RefundAmount, a.TotalAmount = "REFUND_SUCCESS", yuan(amount), yuan(tradeTotal)
	}
	return a
}

// request returns the number of the refund; without one it is the trade's own.
func (b bizContent) request() string {
	return cmp.Or(b.OutRequestNo, b.OutTradeNo, b.TradeNo)
}

func (all *trades) refunds(appID string) map[string]int {
	all.mu.Lock()
	defer all.mu.Unlock()
	n := make(map[string]int)
	for id, t := range all.byID {
		if id.app == appID && len(t.refunds) > 0 {
			n[id.number] = len(t.refunds)
		}
	}
	return n
}

// fen reads an amount in yuan with at most two decimals.
func fen(amount string) (int64, bool) {
	whole, part, _ := strings.Cut(amount, ".")
	if len(part) > 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+part+"00"[len(part):], 10, 62)
	return int64(n), err == nil
}

func yuan(fen int64) string {
	return fmt.Sprintf("%d.%02d", fen/100, fen%100)
}
