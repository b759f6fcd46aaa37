package upstream

import (
	"net/http"
	"strings"
	"testing"
)

// typed returns a POST whose Content-Type has the given fields.
func typed(body string, fields ...string) *Request {
	return &Request{Method: "POST", Target: "/", Header: http.Header{"Content-Type": fields}, Body: []byte(body)}
}

// TestTypeTwice: a type that is there twice is one type (Antom's SDK for Go sends application/json, and again with a charset);
// two types are an error that names them.
func TestTypeTwice(t *testing.T) {
	const js, form, multi = "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
	fields := "--B\r\nContent-Disposition: form-data; name=\"m\"\r\n\r\nrefund\r\n--B--\r\n"
	for _, tt := range []struct {
		name, source string
		r            *Request
		want         string // empty: an error, with
		text         string
	}{
		{"of Antom's SDK", `json("m")`, typed(`{"m":"refund"}`, js, js+"; charset=UTF-8"), "refund", ""},
		{"the other way round", `json("m")`, typed(`{"m":"refund"}`, js+"; charset=UTF-8", js), "refund", ""},
		{"alike", `json("m")`, typed(`{"m":"refund"}`, js, js), "refund", ""},
		{"in another case", `json("m")`, typed(`{"m":"refund"}`, "Application/JSON;Charset=utf8", js+" ; charset=\"UTF-8\""), "refund", ""},
		{"three times", `json("m")`, typed(`{"m":"refund"}`, js, js+";charset=utf-8", js), "refund", ""},
		{"joined", `json("m")`, typed(`{"m":"refund"}`, js+", "+js+"; charset=UTF-8"), "refund", ""},
		{"with a comma in quotes", `json("m")`, typed(`{"m":"refund"}`, js+`; x="a, \"b"`, js), "refund", ""},
		{"of a form", `form("m")`, typed("m=refund", form, form+"; charset=utf-8"), "refund", ""},
		{"of a multipart form", `form("m")`, typed(fields, multi, "Multipart/Form-Data; boundary=\"B\""), "refund", ""},
		{"of XML", `xml("m")`, typed("<a><m>refund</m></a>", "text/xml", "text/xml; charset=utf-8"), "refund", ""},
		{"one charset of several", `form("m")`, typed("m=refund", form+"; charset=gbk", form+"; charset=GBK"), "refund", ""},
		{"two types", `json("m")`, typed(`{"m":"refund"}`, "text/plain", js), "", `two types, "text/plain" and "application/json"`},
		{"two types, joined", `json("m")`, typed(`{"m":"refund"}`, js+", text/json"), "", `two types, "application/json" and "text/json"`},
		{"two types of forms", `form("m") + "!"`, typed("m=refund", form, multi), "", "two types"},
		{"two boundaries", `form("m") + "!"`, typed(fields, multi, "multipart/form-data; boundary=C"), "", "several charsets or boundaries"},
		{"one boundary of two", `form("m") + "!"`, typed(fields, "multipart/form-data", multi), "", "several charsets or boundaries"},
		{"two charsets", `form("m") + "!"`, typed("m=refund", form+"; charset=gbk", form+"; charset=utf-8"), "", "several charsets or boundaries"},
		{"another charset than UTF-8", `json("m")`, typed(`{"m":"refund"}`, js, js+"; charset=gbk"), "", "several charsets or boundaries"},
		{"an empty one", `json("m")`, typed(`{"m":"refund"}`, "", js), "", "cannot be parsed"},
		{"an empty element", `json("m")`, typed(`{"m":"refund"}`, js+","), "", "cannot be parsed"},
		{"a broken charset", `json("m")`, typed(`{"m":"refund"}`, js, js+"; x; charset=utf-16"), "", "cannot be parsed"},
		{"a charset of two bytes", `json("m")`, typed(`{"m":"refund"}`, js+"; charset=utf-16", js+"; charset=utf-16"), "", `charset "utf-16"`},
	} {
		e, err := Compile(tt.source, Key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Key(NewInput(tt.r)); got != tt.want || (err != nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// TestTypeTwiceIsTheSame: a repeat of a form under its key is the same request though its type is there twice.
func TestTypeTwiceIsTheSame(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://a.test", Idempotency: Idempotency{Header: "K", Same: `params("sign")`}})
	one := u.Fingerprint(typed("a=1&sign=x", urlencodedForm))
	for _, again := range []*Request{
		typed("a=1&sign=y", urlencodedForm, urlencodedForm+"; charset=utf-8"),
		typed("sign=y&a=1", urlencodedForm+", "+urlencodedForm+"; charset=utf-8"),
	} {
		if u.Fingerprint(again) != one {
			t.Errorf("%v is another request", again.Header)
		}
	}
}

// TestCharsets: a limit reads a form in each charset whose bytes below 0x80 are those of ASCII, and names the charset of another one.
func TestCharsets(t *testing.T) {
	e, err := Compile(`form("m")`, Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, charset := range strings.Fields(`utf-8 UTF8 us-ascii ASCII iso-8859-1 ISO8859-15 iso_8859-2 ISO8859_1 latin1 latin-9 windows-1250 windows-1251 windows-1252 Cp1252 x-cp1251 windows-874
		koi8-r KOI8-U tis-620 macintosh ibm866 cp866 euc-kr EUC_KR ks_c_5601-1987 MS949 cp949 windows-949 euc-jp EUC-TW gbk GB2312 gb18030 cp936 MS936 big5 Big5-HKSCS cp950 shift_jis Shift-JIS SJIS windows-31j cp932`) {
		body := "n=%81%5c&%B0%A1\xb0\xa1=\xc5\xd7&m=refund&x=\x81\\"
		if got, err := e.Key(NewInput(typed(body, urlencodedForm+"; charset="+charset))); got != "refund" {
			t.Errorf("%s: %q, %v", charset, got, err)
		}
	}
	for _, charset := range strings.Fields(`utf-16 utf-16le UTF-32 utf-7 hz-gb-2312 iso-2022-jp iso-2022-kr iso-2022-cn ibm037 cp037 cp500 ebcdic-us scsu bocu-1 johab x-unknown utf-8x xutf-8 cp12520`) {
		if _, err := e.Key(NewInput(typed("m=refund", urlencodedForm+"; charset="+charset))); err == nil || !strings.Contains(err.Error(), `its charset "`+charset+`" is`) {
			t.Errorf("%s: %v", charset, err)
		}
	}
}

// TestHalves: a backslash or a bracket that may be the second half of a character is an error, because it ends a text for some
// servers and not for others.
func TestHalves(t *testing.T) {
	const js, text = "application/json; charset=", "text/xml; charset="
	for _, tt := range []struct {
		name, source string
		r            *Request
		want         string
	}{
		{"JSON in GBK", `json("m") ?? "none"`, typed("{\"a\":\"\u4e16\\\\\",\"m\":\"refund\"}", js+"gbk"), ""},
		{"JSON in Shift JIS", `json("m") ?? "none"`, typed("{\"a\":\"\u4e16\\\\\",\"m\":\"refund\"}", js+"Shift_JIS"), ""},
		{"JSON without such a byte", `json("m")`, typed("{\"a\":\"\u4e16 \\\"\",\"m\":\"refund\"}", js+"gbk"), "refund"},
		{"JSON in UTF-8", `json("m")`, typed("{\"a\":\"\u4e16\\\"\",\"m\":\"refund\"}", js+"utf-8"), "refund"},
		{"JSON in EUC-KR", `json("m")`, typed("{\"a\":\"\u4e16\\\"\",\"m\":\"refund\"}", js+"euc-kr"), "refund"},
		{"XML in Big5", `xml("m")`, typed("<a><x><![CDATA[\u4e16]]></x><m>refund</m></a>", text+"big5"), ""},
		{"XML without such a byte", `xml("m")`, typed("<a><x>\u4e16</x><m>refund</m></a>", text+"big5"), "refund"},
		{"the name of a field", `form("m")`, typed("--B\r\nContent-Disposition: form-data; name=\"\x95\\\"; x=\"\"\r\n\r\nx\r\n--B\r\nContent-Disposition: form-data; name=m\r\n\r\nrefund\r\n--B--\r\n", "multipart/form-data; boundary=B"), ""},
	} {
		e, err := Compile(tt.source, Key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Key(NewInput(tt.r)); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}
