package upstream

import (
	"strings"
	"testing"
)

// TestRefuse: the reason of an expression that refuses is told, and no other one.
func TestRefuse(t *testing.T) {
	e, err := Compile(`query("a") == "" ? refuse("send it " + "plain") : query("a")`, Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Key(NewInput(&Request{Target: "/"})); err == nil || !strings.HasSuffix(err.Error(), ": send it plain") {
		t.Errorf("without a value: %v", err)
	}
	if key, err := e.Key(NewInput(&Request{Target: "/?a=b"})); key != "b" || err != nil {
		t.Errorf("with a value: %q, %v", key, err)
	}
}
