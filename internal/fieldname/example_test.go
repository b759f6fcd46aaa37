package fieldname_test

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/fieldname"
)

func Example() {
	fmt.Println(fieldname.Others([]byte("POST / HTTP/1.1\r\nHost: a.test\r\nSOAPAction: pay\r\naccept: */*\r\n\r\n")))
	// Output: [SOAPAction accept]
}
