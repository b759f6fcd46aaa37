package xmltext

import (
	"fmt"
	"strings"
	"testing"
)

func ExampleRead() {
	root, err := Read([]byte("<xml><appid>wx1</appid><out_trade_no><![CDATA[T1]]></out_trade_no></xml>"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range root.Elements {
		fmt.Println(e.Name, e.Text)
	}
	// Output:
	// appid wx1
	// out_trade_no T1
}

func TestRead(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for name, tt := range map[string]struct {
		text, want string
		err        error
	}{
		"flat":                        {"<xml><a>1</a><b/></xml>", "xml(a=1 b=)", nil},
		"nested, with prefixes":       {`<s:e xmlns:s="u"><s:a n="1"><b>2</b></s:a></s:e>`, "s:e(s:a(b=2))", nil},
		"a declaration and a mark":    {bom + `<?xml version="1.0" encoding="UTF-8"?>` + "\n<xml><a>1</a></xml>\n", "xml(a=1)", nil},
		"escapes":                     {"<xml><a>&lt;&#65;&amp;</a></xml>", "xml(a=<A&)", nil},
		"markup inside CDATA":         {"<xml><a><![CDATA[<b>&amp;</b>]]></a></xml>", "xml(a=<b>&amp;</b>)", nil},
		"lines around CDATA":          {"<xml><a>\n<![CDATA[1]]>\n</a></xml>", "xml(a=\n1\n)", nil},
		"root only":                   {"<a>1</a>", "a=1", nil},
		"a document type":             {"<!DOCTYPE x [<!ENTITY a \"1\">]><xml><a>&a;</a></xml>", "", errMarkup},
		"an external one":             {`<!DOCTYPE x SYSTEM "file:///etc/passwd"><xml/>`, "", errMarkup},
		"an unknown entity":           {"<xml><a>&b;</a></xml>", "", errBroken},
		"a comment":                   {"<xml><a>1<!-- 2 --></a></xml>", "", errMarkup},
		"an instruction":              {"<xml><?php 1 ?></xml>", "", errMarkup},
		"a declaration in the middle": {`<xml><?xml version="1.0"?></xml>`, "", errMarkup},
		"two pieces":                  {"<xml><a>1<![CDATA[2]]></a></xml>", "", errPieces},
		"text before an element":      {"<xml>1<a/></xml>", "", errPieces},
		"text behind an element":      {"<xml><a/>1</xml>", "", errPieces},
		"two roots":                   {"<xml/><xml/>", "", errBroken},
		"text behind the root":        {"<xml/>1", "", errBroken},
		"text before the root":        {"1<xml/>", "", errBroken},
		"not closed":                  {"<xml><a>1</a>", "", errBroken},
		"closed in another order":     {"<xml><a><b></a></b></xml>", "", errBroken},
		"closed twice":                {"<xml></xml></xml>", "", errBroken},
		"another prefix at the end":   {"<s:a></t:a>", "", errBroken},
		"nothing":                     {" ", "", errBroken},
		"a broken character":          {"<xml><a>\xff</a></xml>", "", errBroken},
		"another encoding":            {`<?xml version="1.0" encoding="GBK"?><xml/>`, "", errBroken},
		"UTF-16":                      {"\xff\xfe<\x00a\x00/\x00>\x00", "", errBroken},
		"as deep as may be":           {strings.Repeat("<a>", MaxDepth) + strings.Repeat("</a>", MaxDepth), strings.Repeat("a(", MaxDepth-1) + "a=" + strings.Repeat(")", MaxDepth-1), nil},
		"deeper":                      {strings.Repeat("<a>", MaxDepth+1) + strings.Repeat("</a>", MaxDepth+1), "", errLarge},
		"very deep":                   {strings.Repeat("<a>", 1<<20), "", errLarge},
		"too many":                    {"<xml>" + strings.Repeat("<a/>", MaxElements) + "</xml>", "", errLarge},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := Read([]byte(tt.text))
			if err != tt.err {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if got := drawn(root); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func drawn(e *Element) string {
	if e == nil {
		return ""
	}
	if len(e.Elements) == 0 {
		return e.Name + "=" + e.Text
	}
	var inside []string
	for _, child := range e.Elements {
		inside = append(inside, drawn(child))
	}
	return e.Name + "(" + strings.Join(inside, " ") + ")"
}

// The places of elements are those of their bytes, also behind a byte order mark.
func TestPlaces(t *testing.T) {
	for _, mark := range []string{"", "\xef\xbb\xbf"} {
		text := mark + `<?xml version="1.0"?><xml><a>é</a> <b/><c x="1"><![CDATA[2]]></c ></xml>`
		root, err := Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"<a>é</a>", "<b/>", `<c x="1"><![CDATA[2]]></c >`} {
			if e := root.Elements[i]; text[e.From:e.To] != want {
				t.Errorf("%s is at %q", e.Name, text[e.From:e.To])
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("<xml><a>1</a><b><![CDATA[2]]></b></xml>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		root, err := Read(text)
		if (root == nil) == (err == nil) {
			t.Fatalf("%v, %v", root, err)
		}
		var check func(e *Element, from, to int)
		check = func(e *Element, from, to int) {
			if e.From < from || e.To > to || e.From >= e.To || text[e.From] != '<' || text[e.To-1] != '>' {
				t.Fatalf("%s is at %d to %d of %d to %d", e.Name, e.From, e.To, from, to)
			}
			at := e.From
			for _, child := range e.Elements {
				check(child, at, e.To)
				at = child.To
			}
		}
		if root != nil {
			check(root, 0, len(text))
		}
	})
}
