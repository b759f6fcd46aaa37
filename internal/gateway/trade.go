package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// tradeTotal is what every trade was paid with, in fen.
const tradeTotal = 100_00

// A tradeID names a trade by the number that its callers use, theirs or the platform's.
type tradeID struct{ app, number string }

// A trade keeps its refunds by out_request_no, amounts in fen.
type trade struct {
	refunds  map[string]int64
	refunded int64 // all of them
}

// bizContent is what the methods read of biz_content.
type bizContent struct {
	OutTradeNo   string      `json:"out_trade_no"`
	TradeNo      string      `json:"trade_no"`
	OutRequestNo string      `json:"out_request_no"`
	RefundAmount json.Number `json:"refund_amount"`
}

// methods is what the gateway executes; each has the trade to itself.
var methods = map[string]func(*trade, bizContent) answer{
	Refund:      (*trade).refund,
	Query:       (*trade).query,
	RefundQuery: (*trade).refundQuery,
}

// execute carries out a call that was let through.
func (g *Gateway) execute(p params) answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	var b bizContent
	if json.Unmarshal([]byte(cmp.Or(p["biz_content"], "{}")), &b) != nil {
		return illegalJSON
	}
	id := tradeID{p["app_id"], cmp.Or(b.OutTradeNo, b.TradeNo)}
	if id.number == "" {
		return businessFailed("ACQ.INVALID_PARAMETER", "参数无效")
	}
	t := g.trades[id]
	if t == nil {
		t = &trade{refunds: make(map[string]int64)}
		g.trades[id] = t
	}
	app, method := g.talliesLocked(p)
	app.executed++
	method.executed++
	a := methods[p["method"]](t, b)
	if a.Code == "10000" {
		a.Msg, a.OutTradeNo, a.TradeNo = "Success", b.OutTradeNo, id.number
	}
	return a
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

// refundQuery answers success without a status for a refund that it does not know, as
// the platform does.
func (t *trade) refundQuery(b bizContent) answer {
	a := answer{Code: "10000", OutRequestNo: b.request()}
	if amount, ok := t.refunds[b.request()]; ok {
		a.RefundStatus, a.RefundAmount, a.TotalAmount = "REFUND_SUCCESS", yuan(amount), yuan(tradeTotal)
	}
	return a
}

// request is the number of the refund; without one it is the trade's own.
func (b bizContent) request() string {
	return cmp.Or(b.OutRequestNo, b.OutTradeNo, b.TradeNo)
}

// Refunds returns how often each trade of an app was refunded, repeats not counted.
func (g *Gateway) Refunds(appID string) map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := make(map[string]int)
	for id, t := range g.trades {
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
