package quoted_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/quoted"
)

func Example() {
	for _, part := range quoted.Split(`respond-async, note="a, b"; q=1`, ',') {
		fmt.Println(part)
	}
	// Output:
	// respond-async
	// note="a, b"; q=1
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		s    string
		want []string
	}{
		{"", []string{""}},
		{" a ,b", []string{"a", "b"}},
		{",a,", []string{"", "a", ""}},
		{`"a,b",c`, []string{`"a,b"`, "c"}},
		{`"a\",b",c`, []string{`"a\",b"`, "c"}},
		{`a,"b,c`, []string{"a", `"b,c`}},
		{`"a\`, []string{`"a\`}},
	} {
		if got := quoted.Split(tt.s, ','); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.s, got, tt.want)
		}
	}
}
