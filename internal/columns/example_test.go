package columns_test

import (
	"fmt"
	"net/http"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A sealed request has no text in the clear, and is checked when it is read.
func Example() {
	codec, err := columns.NewCodec([]byte("a key of thirty-two bytes of AES"))
	if err != nil {
		panic(err)
	}
	codec.Bind()
	c, err := codec.EncodeRequest("call-1", &upstream.Request{Method: "POST", Target: "/refund", Header: http.Header{}, Body: []byte("amount=5")})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%q %q\n", c.Target, c.Body)
	r, err := codec.DecodeRequest("call-1", c)
	fmt.Println(r.Method, r.Target, string(r.Body), err)
	_, err = codec.DecodeRequest("call-2", c)
	fmt.Println(err)
	// Output:
	// "" ""
	// POST /refund amount=5 <nil>
	// request of call call-2: a row does not match its checksum: the file is damaged, or was changed by another program
}
