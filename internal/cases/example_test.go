package cases_test

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// A payment of unknown outcome is taken for a failed one.
func ExamplePlay() {
	file, err := config.ParseCases("shop_test.yaml", []byte(`
preset: stripe
cases:
  - {case: no answer, request: {target: /v1/charges}, answer: lost, outcome: failed, then: person}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range file {
		for _, failure := range cases.Play(c).Failures {
			fmt.Println(c.Place+":", c.Name+":", failure)
		}
	}
	// Output: shop_test.yaml:4: no answer: outcome: want failed, got unknown (no answer: the connection was closed)
}
