package signer

import (
	"crypto/md5"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The key, the texts and both signatures of the platform's own example.
const (
	v2Key  = "192006250b4c09247ec02edce69f6a2d"
	v2Body = "<xml><appid>wxd930ea5d5a258f4f</appid><mch_id>10000100</mch_id><device_info>1000</device_info><body>test</body><nonce_str>ibuaiVcKdpRxkhJA</nonce_str>"
	v2MD5  = "9A0A8659F005D6984697E2CA0A9CF3B7"
	v2HMAC = "6A9AE1657590FD6257D693A078E1C3E4BB6BA4DC30B23E0EE2496E54170DACD6"
)

func TestWechatPayV2(t *testing.T) {
	t.Setenv("API_KEY", v2Key)
	s := newSigner(t, Config{Kind: "wechatpay-v2", Key: "env:API_KEY", Merchant: "10000100"})
	for name, tt := range map[string]struct{ target, body, want string }{
		"MD5":                   {"/pay/micropay", v2Body + "</xml>", v2Body + "<sign>" + v2MD5 + "</sign></xml>"},
		"HMAC-SHA256":           {"/secapi/pay/profitsharing", v2Body + "</xml>", v2Body + "<sign>" + v2HMAC + "</sign></xml>"},
		"of many sharings":      {"/secapi/pay/multiprofitsharing?x=1", v2Body + "</xml>", v2Body + "<sign>" + v2HMAC + "</sign></xml>"},
		"another signature":     {"/pay/micropay", "<xml><sign>old</sign>" + v2Body[5:] + "</xml>\n", v2Body + "<sign>" + v2MD5 + "</sign></xml>\n"},
		"empty elements":        {"/pay/micropay", v2Body + "<attach></attach><detail/></xml>", v2Body + "<attach></attach><detail/><sign>" + v2MD5 + "</sign></xml>"},
		"another order":         {"/pay/micropay", "<xml><nonce_str>ibuaiVcKdpRxkhJA</nonce_str>" + strings.Replace(v2Body[5:], "<nonce_str>ibuaiVcKdpRxkhJA</nonce_str>", "</xml>", 1), "<xml><nonce_str>ibuaiVcKdpRxkhJA</nonce_str>" + strings.Replace(v2Body[5:], "<nonce_str>ibuaiVcKdpRxkhJA</nonce_str>", "<sign>"+v2MD5+"</sign></xml>", 1)},
		"CDATA":                 {"/pay/micropay", strings.Replace(v2Body, "test", "<![CDATA[test]]>", 1) + "</xml>", strings.Replace(v2Body, "test", "<![CDATA[test]]>", 1) + "<sign>" + v2MD5 + "</sign></xml>"},
		"a prefix of another":   {"/", "<xml><mch_id>10000100</mch_id><nonce_str>n</nonce_str><a_10>x</a_10><a_1>y</a_1></xml>", "<xml><mch_id>10000100</mch_id><nonce_str>n</nonce_str><a_10>x</a_10><a_1>y</a_1><sign>" + md5Of("a_1=y&a_10=x&mch_id=10000100&nonce_str=n") + "</sign></xml>"},
		"a transfer":            {"/", "<xml><mchid>10000100</mchid><nonce_str>n</nonce_str></xml>", "<xml><mchid>10000100</mchid><nonce_str>n</nonce_str><sign>" + md5Of("mchid=10000100&nonce_str=n") + "</sign></xml>"},
		"said to be MD5":        {"/pay/profitsharing", "<xml><mch_id>10000100</mch_id><nonce_str>n</nonce_str><sign_type>MD5</sign_type></xml>", "<xml><mch_id>10000100</mch_id><nonce_str>n</nonce_str><sign_type>MD5</sign_type><sign>" + md5Of("mch_id=10000100&nonce_str=n&sign_type=MD5") + "</sign></xml>"},
		"another merchant":      {"/", "<xml><mch_id>1</mch_id></xml>", ""},
		"no merchant":           {"/", "<xml><appid>1</appid></xml>", ""},
		"no elements":           {"/", "<xml/>", ""},
		"an unknown type":       {"/", "<xml><mch_id>10000100</mch_id><sign_type>RSA</sign_type></xml>", ""},
		"an element twice":      {"/", "<xml><mch_id>10000100</mch_id><a>1</a><a>2</a></xml>", ""},
		"twice, once empty":     {"/", "<xml><mch_id>10000100</mch_id><a/><a>2</a></xml>", ""},
		"an element inside one": {"/", "<xml><mch_id>10000100</mch_id><a><b>1</b></a></xml>", ""},
		"a document type":       {"/", "<!DOCTYPE x><xml><mch_id>10000100</mch_id></xml>", ""},
		"no XML":                {"/", "mch_id=10000100", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &upstream.Request{Method: "POST", Target: tt.target, Body: []byte(tt.body)}
			err := s.Sign(t.Context(), r)
			if tt.want == "" {
				if err == nil || string(r.Body) != tt.body {
					t.Errorf("signed, or changed: %s, %v", r.Body, err)
				}
				return
			}
			if err != nil || string(r.Body) != tt.want {
				t.Errorf("%s, %v\nwant %s", r.Body, err, tt.want)
			}
			if err := s.Sign(t.Context(), r); err != nil || string(r.Body) != tt.want {
				t.Errorf("signed again: %s, %v", r.Body, err)
			}
		})
	}
}

// A query of the sidecar has no nonce yet.
func TestWechatPayV2Nonce(t *testing.T) {
	t.Setenv("API_KEY", v2Key)
	s := newSigner(t, Config{Kind: "wechatpay-v2", Key: "env:API_KEY", Merchant: "10000100"})
	seen := make(map[string]bool)
	for _, body := range []string{"<xml><mch_id>10000100</mch_id></xml>", "<xml><nonce_str/><mch_id>10000100</mch_id></xml>"} {
		r := &upstream.Request{Method: "POST", Target: "/pay/orderquery", Body: []byte(body)}
		if err := s.Sign(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		random, rest, _ := strings.Cut(strings.TrimPrefix(string(r.Body), "<xml><mch_id>10000100</mch_id><nonce_str>"), "</nonce_str>")
		if len(random) < 16 || len(random) > 32 || seen[random] || rest != "<sign>"+md5Of("mch_id=10000100&nonce_str="+random)+"</sign></xml>" {
			t.Errorf("signed as %s", r.Body)
		}
		seen[random] = true
	}
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text + "&key=" + v2Key))
	return fmt.Sprintf("%X", sum)
}
