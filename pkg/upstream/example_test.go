package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A platform that says "limited" with status 200.
func Example() {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"alipay_trade_query_response":{"code":"40005","msg":"Call Limited"}}`)
	}))
	defer platform.Close()

	up, err := upstream.New(upstream.Config{
		Name: "alipay",
		URL:  platform.URL,
		Outcomes: []upstream.Rule{
			{When: `body("*_response.code") == "10000"`, Is: upstream.Done},
			{When: `body("*_response.code") == "40005"`, Is: upstream.NotExecuted},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer up.Close()

	result := up.Do(context.Background(), &upstream.Request{Method: "GET", Target: "/gateway.do"})
	defer result.Response.Body.Close()
	fmt.Println(result.Response.StatusCode, result.Outcome)
	// Output: 200 not_executed
}

// Expressions read a request: as conditions, as keys of limits, and as costs.
func ExampleCompile() {
	in := upstream.NewInput(&upstream.Request{
		Method: "POST", Target: "/gateway.do?app_id=7",
		Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"items":[1,2,3]}`),
	})
	refunds, err := upstream.Compile(`method == "POST" and path == "/gateway.do"`, upstream.Condition)
	if err != nil {
		panic(err)
	}
	fmt.Println(refunds.Bool(in))
	app, err := upstream.Compile(`param("app_id")`, upstream.Key)
	if err != nil {
		panic(err)
	}
	fmt.Println(app.Key(in))
	_, err = upstream.Compile(`param("app_id")`, upstream.Condition)
	fmt.Println(err != nil) // it is a text, not true or false
	// Output:
	// true <nil>
	// 7 <nil>
	// true
}
