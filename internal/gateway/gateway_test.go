package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/smartwalle/alipay/v3"
)

const appID = "2021000000000001"

// One pair of keys for each side serves all tests, because generating keys is slow.
var appKeys, gatewayKeys = NewKeys(), NewKeys()

// start serves a gateway with one app, and closes it with the test.
func start(t testing.TB, config Config) (*Gateway, *Server) {
	t.Helper()
	config.Apps = map[string]string{appID: appKeys.Public}
	config.Keys = gatewayKeys
	g, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := Start("", g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return g, srv
}

// sdk returns a client of srv, configured as by a merchant.
func sdk(t testing.TB, srv *Server, g *Gateway, opts ...alipay.OptionFunc) *alipay.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	opts = append([]alipay.OptionFunc{
		alipay.WithProductionGateway(srv.URL + Path),
		alipay.WithHTTPClient(&http.Client{Transport: transport}),
	}, opts...)
	c, err := alipay.New(appID, appKeys.Private, true, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.LoadAliPayPublicKey(g.PublicKey); err != nil {
		t.Fatal(err)
	}
	return c
}

func refundOf(trade, request, amount string) alipay.TradeRefund {
	return alipay.TradeRefund{OutTradeNo: trade, OutRequestNo: request, RefundAmount: amount}
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRefundsAreIdempotentByNumber(t *testing.T) {
	g, srv := start(t, Config{})
	c := sdk(t, srv, g)

	for _, step := range []struct {
		request, amount string
		code            alipay.Code
		sub             string
		change, fee     string
		refunds         int // of the trade so far
	}{
		{"r1", "1.50", "10000", "", "Y", "1.50", 1},
		{"r1", "1.50", "10000", "", "N", "1.50", 1},
		{"r1", "1.5", "10000", "", "N", "1.50", 1},
		{"r1", "1.51", "40004", "ACQ.DISCORDANT_REPEAT_REQUEST", "", "", 1},
		{"r2", "2", "10000", "", "Y", "3.50", 2},
		{"", "3", "10000", "", "Y", "6.50", 3},
		{"t1", "3", "10000", "", "N", "6.50", 3}, // a refund without a number has the trade's own
		{"r3", "0", "40004", "ACQ.INVALID_PARAMETER", "", "", 3},
		{"r3", "1.001", "40004", "ACQ.INVALID_PARAMETER", "", "", 3},
		{"r3", "-1", "40004", "ACQ.INVALID_PARAMETER", "", "", 3},
	} {
		rsp, err := c.TradeRefund(t.Context(), refundOf("t1", step.request, step.amount))
		if err != nil {
			t.Fatalf("%+v: %v", step, err)
		}
		if rsp.Code != step.code || rsp.SubCode != step.sub || rsp.FundChange != step.change || rsp.RefundFee != step.fee {
			t.Errorf("%+v: got %s %s, fund_change %q, refund_fee %q", step, rsp.Code, rsp.SubCode, rsp.FundChange, rsp.RefundFee)
		}
		if n := g.Refunds(appID)["t1"]; n != step.refunds {
			t.Errorf("%+v: %d refunds made", step, n)
		}
	}
	if got := g.Method(appID, Refund); len(got.Arrivals) != 10 || got.Executed != 10 || got.Limited != 0 {
		t.Errorf("tally: %d arrivals, %d executed, %d limited", len(got.Arrivals), got.Executed, got.Limited)
	}
}

func TestQueries(t *testing.T) {
	g, srv := start(t, Config{})
	c := sdk(t, srv, g)
	refundQuery := alipay.TradeFastPayRefundQuery{OutTradeNo: "t1", OutRequestNo: "r1"}

	if rsp, err := c.TradeFastPayRefundQuery(t.Context(), refundQuery); err != nil || rsp.Code != "10000" || rsp.RefundStatus != "" {
		t.Errorf("before the refund: %+v, %v", rsp, err)
	}
	if rsp, err := c.TradeRefund(t.Context(), refundOf("t1", "r1", "100")); err != nil || rsp.Code != "10000" {
		t.Fatalf("refund: %+v, %v", rsp, err)
	}
	if rsp, err := c.TradeFastPayRefundQuery(t.Context(), refundQuery); err != nil || rsp.RefundStatus != "REFUND_SUCCESS" || rsp.RefundAmount != "100.00" {
		t.Errorf("after the refund: %+v, %v", rsp, err)
	}
	if rsp, err := c.TradeQuery(t.Context(), alipay.TradeQuery{OutTradeNo: "t1"}); err != nil || rsp.TradeStatus != "TRADE_CLOSED" {
		t.Errorf("query of a refunded trade: %+v, %v", rsp, err)
	}
	if rsp, err := c.TradeQuery(t.Context(), alipay.TradeQuery{TradeNo: "t2"}); err != nil || rsp.TradeStatus != "TRADE_SUCCESS" || rsp.TotalAmount != "100.00" {
		t.Errorf("query of another trade: %+v, %v", rsp, err)
	}
	if rsp, err := c.TradeQuery(t.Context(), alipay.TradeQuery{}); err != nil || rsp.SubCode != "ACQ.INVALID_PARAMETER" {
		t.Errorf("query of no trade: %+v, %v", rsp, err)
	}
	if rsp, err := c.TradeClose(t.Context(), alipay.TradeClose{OutTradeNo: "t2"}); err != nil || rsp.Code != "40002" || rsp.SubCode != "isv.invalid-method" {
		t.Errorf("a method that is not there: %+v, %v", rsp, err)
	}
}

// TestLimitsAtOnce sends far more calls at once than the limits allow, and expects
// exactly N admitted under each: a window of an hour does not slide during the
// test.
func TestLimitsAtOnce(t *testing.T) {
	g, srv := start(t, Config{
		AppLimit:     Limit{30, time.Hour},
		MethodLimits: map[string]Limit{Refund: {10, time.Hour}},
	})
	c := sdk(t, srv, g)

	var mu sync.Mutex
	got := make(map[string]int)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { // alternately, so that both limits are reached
			rsp, err := c.TradeRefund(t.Context(), refundOf(fmt.Sprint("t", i), "r", "1"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got[string(rsp.Code)+" "+rsp.SubCode]++
		})
	}
	wg.Wait()
	if got["10000 "] != 10 || got["40005 isv.method-call-limited"] != 30 {
		t.Errorf("refunds: %v", got)
	}
	for i := range 40 {
		rsp, err := c.TradeQuery(t.Context(), alipay.TradeQuery{OutTradeNo: "t"})
		if err != nil {
			t.Fatal(err)
		}
		if limited := rsp.SubCode == "isv.app-call-limited"; limited != (i >= 20) {
			t.Errorf("query %d: %s %s", i, rsp.Code, rsp.SubCode)
		}
	}

	app, refund := g.App(appID), g.Method(appID, Refund)
	if len(app.Arrivals) != 80 || app.Most() != 80 || app.Limited != 20 || app.Executed != 30 {
		t.Errorf("app: %d arrivals, most %d, %d limited, %d executed", len(app.Arrivals), app.Most(), app.Limited, app.Executed)
	}
	if len(refund.Arrivals) != 40 || refund.Most() != 40 || refund.Limited != 30 || refund.Executed != 10 {
		t.Errorf("refund: %d arrivals, most %d, %d limited, %d executed", len(refund.Arrivals), refund.Most(), refund.Limited, refund.Executed)
	}
	if n := len(g.Refunds(appID)); n != 10 {
		t.Errorf("%d trades refunded", n)
	}
}

// TestSignaturesBothWays changes one field of a signed request, then one byte of a
// signed answer.
func TestSignaturesBothWays(t *testing.T) {
	g, srv := start(t, Config{})
	forge := func(r *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		b = bytes.Replace(b, []byte("1.00"), []byte("9.00"), 1)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		return http.DefaultTransport.RoundTrip(r)
	}
	c := sdk(t, srv, g, alipay.WithHTTPClient(&http.Client{Transport: roundTripper(forge)}))
	rsp, err := c.TradeRefund(t.Context(), refundOf("t1", "r1", "1.00"))
	if err != nil || rsp.SubCode != "isv.invalid-signature" {
		t.Errorf("changed request: %+v, %v", rsp, err)
	}
	if len(g.Refunds(appID)) != 0 {
		t.Error("a changed request was executed")
	}
	if n := len(g.App(appID).Arrivals); n != 1 {
		t.Errorf("%d arrivals counted of a changed request", n)
	}

	alter := func(r *http.Request) (*http.Response, error) {
		rsp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(rsp.Body)
		rsp.Body = io.NopCloser(bytes.NewReader(bytes.Replace(b, []byte("1.00"), []byte("9.00"), 1)))
		return rsp, err
	}
	c = sdk(t, srv, g, alipay.WithHTTPClient(&http.Client{Transport: roundTripper(alter)}))
	if _, err := c.TradeRefund(t.Context(), refundOf("t1", "r1", "1.00")); err == nil || !strings.Contains(err.Error(), "verification") {
		t.Errorf("changed answer: err = %v", err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestWhereParametersTravel sends the same signed parameters in query, form and
// multipart body.
func TestWhereParametersTravel(t *testing.T) {
	g, srv := start(t, Config{})
	values, err := sdk(t, srv, g).URLValues(alipay.TradeQuery{OutTradeNo: "t1"})
	if err != nil {
		t.Fatal(err)
	}
	biz := url.Values{"biz_content": values["biz_content"]}
	common := url.Values{}
	for k, v := range values {
		if k != "biz_content" {
			common[k] = v
		}
	}
	const form = "application/x-www-form-urlencoded;charset=utf-8"
	var parts bytes.Buffer
	m := multipart.NewWriter(&parts)
	for k, v := range values {
		m.WriteField(k, v[0])
	}
	m.Close()

	for name, r := range map[string]*http.Request{
		"query":          request("GET", srv.URL+Path+"?"+values.Encode(), "", ""),
		"form":           request("POST", srv.URL+Path, form, values.Encode()),
		"query and form": request("POST", srv.URL+Path+"?"+common.Encode(), form, biz.Encode()),
		"charset twice":  request("POST", srv.URL+Path+"?charset=utf-8", form, values.Encode()),
		"multipart":      request("POST", srv.URL+Path, m.FormDataContentType(), parts.String()),
	} {
		rec := httptest.NewRecorder()
		g.ServeHTTP(rec, r)
		var got struct {
			Object struct{ Code string } `json:"alipay_trade_query_response"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || got.Object.Code != "10000" {
			t.Errorf("%s: %s (%v)", name, rec.Body, err)
		}
		if ct := rec.Header().Get("Content-Type"); rec.Code != 200 || ct != "text/html;charset=utf-8" {
			t.Errorf("%s: status %d, Content-Type %q", name, rec.Code, ct)
		}
	}
}

func request(method, target, contentType, body string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return r
}

// TestRefusals checks the refusals before any limit, and that app_id comes first.
func TestRefusals(t *testing.T) {
	g, srv := start(t, Config{})
	c := sdk(t, srv, g)
	signed := func(change func(url.Values)) string { // after signing
		v, err := c.URLValues(alipay.TradeQuery{OutTradeNo: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		change(v)
		return v.Encode()
	}
	signing := func(change func(url.Values)) string { // before signing
		return signed(func(v url.Values) {
			v.Del("sign")
			change(v)
			s, err := c.SignValues(v)
			if err != nil {
				t.Fatal(err)
			}
			v.Set("sign", base64Std(s))
		})
	}
	for _, tt := range []struct{ name, query, object, sub, sign string }{
		{"nothing", "", "error_response", "isv.missing-app-id", "unsigned"},
		{"malformed", "%zz", "error_response", "isv.invalid-parameter", "unsigned"},
		{"malformed, of an app", "app_id=" + appID + "&%zz", "error_response", "isv.invalid-parameter", "signed"},
		{"unknown app", signed(func(v url.Values) { v.Set("app_id", "1"); v.Del("sign") }), "alipay_trade_query_response", "isv.invalid-app-id", "unsigned"},
		{"no signature", signed(func(v url.Values) { v.Del("sign") }), "alipay_trade_query_response", "isv.missing-signature", "signed"},
		{"other algorithm", signed(func(v url.Values) { v.Set("sign_type", "RSA") }), "alipay_trade_query_response", "isv.invalid-signature-type", "signed"},
		{"no base64", signed(func(v url.Values) { v.Set("sign", "*") }), "alipay_trade_query_response", "isv.invalid-signature", "signed"},
		{"other method", signed(func(v url.Values) { v.Set("method", Refund) }), "alipay_trade_refund_response", "isv.invalid-signature", "signed"},
		{"no method", signing(func(v url.Values) { v.Del("method") }), "error_response", "isv.missing-method", "signed"},
		{"no version", signing(func(v url.Values) { v.Del("version") }), "alipay_trade_query_response", "isv.missing-version", "signed"},
		{"no timestamp", signing(func(v url.Values) { v.Del("timestamp") }), "alipay_trade_query_response", "isv.missing-timestamp", "signed"},
		{"ISO timestamp", signing(func(v url.Values) { v.Set("timestamp", "2026-01-02T03:04:05Z") }), "alipay_trade_query_response", "isv.invalid-timestamp", "signed"},
		{"other content", signing(func(v url.Values) { v.Set("biz_content", "{") }), "alipay_trade_query_response", "isv.illegal-json", "signed"},
		{"an empty parameter is not signed", signed(func(v url.Values) { v.Set("notify_url", "") }), "alipay_trade_query_response", "", "signed"},
	} {
		rec := httptest.NewRecorder()
		g.ServeHTTP(rec, request("POST", "http://gateway"+Path, "application/x-www-form-urlencoded", tt.query))
		var got map[string]json.RawMessage
		var object struct {
			Sub string `json:"sub_code"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
			t.Errorf("%s: %s: %v", tt.name, rec.Body, err)
			continue
		}
		json.Unmarshal(got[tt.object], &object)
		if rec.Code != 200 || got[tt.object] == nil || object.Sub != tt.sub || (got["sign"] != nil) != (tt.sign == "signed") {
			t.Errorf("%s: status %d: %s", tt.name, rec.Code, rec.Body)
		}
	}
	if n := g.App(appID).Executed; n != 1 {
		t.Errorf("%d calls were executed, want the last one only", n)
	}

	rec := httptest.NewRecorder()
	g.ServeHTTP(rec, request("GET", "http://gateway/", "", ""))
	if rec.Code != http.StatusNotFound {
		t.Errorf("another path: status %d", rec.Code)
	}
}

func TestNewReportsFaults(t *testing.T) {
	_, err := New(Config{
		Apps:         map[string]string{"a": "no key"},
		Keys:         Keys{Private: gatewayKeys.Public},
		AppLimit:     Limit{Calls: 1},
		MethodLimits: map[string]Limit{Query: {-1, time.Second}},
	})
	for _, want := range []string{`Apps["a"]`, "Keys.Private", "the whole app: 1 calls per 0s", Query + ": -1 calls per 1s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in %v", want, err)
		}
	}
}
