package upstream

import (
	"fmt"
	"testing"
)

// TestExpressionsAreCompiledOnce: a second upstream with the same expressions has their programs.
// An expression of another kind, or with other variables, is another one, and their number is bounded.
func TestExpressionsAreCompiledOnce(t *testing.T) {
	programs.Lock()
	programs.all = nil // of other tests
	programs.Unlock()
	compiledAs := func(kind Kind) *Expr {
		t.Helper()
		e, err := Compile(`header("once")`, kind)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := compiledAs(Key)
	if compiledAs(Key).program != first.program {
		t.Error("an expression is compiled anew")
	}
	if compiledAs(Text).program == first.program || compiledAs(Same).program == first.program {
		t.Error("an expression of another kind has the same program")
	}
	if _, err := Compile(`header("once")`, Cost); err == nil {
		t.Error("a text is a cost, as its program is known")
	}
	programs.Lock()
	for n := len(programs.all); n < maxPrograms; n++ {
		programs.all[compiled{source: fmt.Sprint(n)}] = first.program
	}
	programs.Unlock()
	for range 2 { // the first one finds no room
		if _, err := Compile(`header("another")`, Key); err != nil || len(programs.all) != 1 {
			t.Errorf("%d programs are kept, want the latest: %v", len(programs.all), err)
		}
	}
}
