package gateway

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
)

// An answer is the object inside the envelope. Callers decide by Code and SubCode
// alone.
type answer struct {
	Code    string `json:"code"`
	Msg     string `json:"msg"`
	SubCode string `json:"sub_code,omitempty"`
	SubMsg  string `json:"sub_msg,omitempty"`

	OutTradeNo   string `json:"out_trade_no,omitempty"`
	TradeNo      string `json:"trade_no,omitempty"`
	OutRequestNo string `json:"out_request_no,omitempty"`
	TradeStatus  string `json:"trade_status,omitempty"`
	TotalAmount  string `json:"total_amount,omitempty"`
	FundChange   string `json:"fund_change,omitempty"`
	RefundFee    string `json:"refund_fee,omitempty"` // sum of the trade's refunds
	RefundAmount string `json:"refund_amount,omitempty"`
	RefundStatus string `json:"refund_status,omitempty"`

	bare bool // goes out without a signature
}

func missing(name string) answer {
	return answer{Code: "40001", Msg: "Missing Required Arguments", SubCode: "isv.missing-" + name, SubMsg: "缺少参数"}
}

func invalid(name string) answer {
	return answer{Code: "40002", Msg: "Invalid Arguments", SubCode: "isv.invalid-" + name, SubMsg: "无效的参数"}
}

func businessFailed(subCode, subMsg string) answer {
	return answer{Code: "40004", Msg: "Business Failed", SubCode: subCode, SubMsg: subMsg}
}

var (
	illegalJSON   = answer{Code: "40002", Msg: "Invalid Arguments", SubCode: "isv.illegal-json", SubMsg: "JSON格式错误"}
	unknownError  = answer{Code: "20000", Msg: "Service Currently Unavailable", SubCode: "isp.unknow-error", SubMsg: "系统繁忙"}
	systemError   = businessFailed("ACQ.SYSTEM_ERROR", "系统错误")
	appLimited    = answer{Code: "40005", Msg: "Call Limited", SubCode: "isv.app-call-limited", SubMsg: "应用调用次数超限"}
	methodLimited = answer{Code: "40005", Msg: "Call Limited", SubCode: "isv.method-call-limited", SubMsg: "API调用次数超限"}
)

// unsigned returns the answer as the platform gives it to an unknown app.
func (a answer) unsigned() answer {
	a.bare = true
	return a
}

// A signer signs answers. Signatures of refusals are kept, because most refusals are
// equal: otherwise a gateway that limits thousands of calls at once would starve the
// client beside it of CPU.
type signer struct {
	key  *rsa.PrivateKey
	kept sync.Map // signatures by signed bytes
}

// encode puts a into its envelope: {"<method>_response":{…},"sign":"…"}. The signature
// is over the bytes of the object in the envelope.
func (s *signer) encode(method string, a answer) []byte {
	name := "error_response"
	if method != "" {
		name = strings.ReplaceAll(method, ".", "_") + "_response"
	}
	label, _ := json.Marshal(name) // a string always encodes
	object, _ := json.Marshal(a)   // and so do strings in a struct

	b := append([]byte{'{'}, label...)
	b = append(b, ':')
	b = append(b, object...)
	if !a.bare {
		b = append(b, `,"sign":"`+s.sign(object, a.Code != "10000")+`"`...)
	}
	return append(b, '}')
}

func (s *signer) sign(object []byte, keep bool) string {
	if signature, ok := s.kept.Load(string(object)); ok {
		return signature.(string)
	}
	sum := sha256.Sum256(object)
	signature, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, sum[:])
	if err != nil {
		panic("BUG: gateway: a valid key cannot sign: " + err.Error())
	}
	text := base64.StdEncoding.EncodeToString(signature)
	if keep {
		s.kept.Store(string(object), text)
	}
	return text
}
