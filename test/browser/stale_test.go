package browser

import "testing"

// TestStaleDecision: two people look at one unknown call. One sends it again; the other, who has
// seen its first attempt, then says that it was executed. That is refused, with the new attempt,
// and changes nothing.
func TestStaleDecision(t *testing.T) {
	s := newScene(t)
	id := s.calls["unknown"]
	one := newTab(t, s.admin, desk)
	two := one.sibling(desk)
	one.open("/ui/calls/" + id + "/retry")
	two.open("/ui/calls/" + id + "/resolve")
	m := mouse{}
	m.choose(two, "input[name=outcome]", "It was executed")
	m.write(two, "textarea[name=reason]", "seen in the console")

	// The number must be typed as it stands.
	m.write(one, "input[name=typed]", "R-88122")
	m.write(one, "textarea[name=reason]", "the merchant console has no entry")
	m.choose(one, "button.danger", "Send again")
	one.says("Type R-88123, as it stands above. Nothing was sent.")
	if n := len(s.get(t, id).Attempts); n != 1 {
		t.Fatalf("the call has %d attempts", n)
	}
	m.write(one, "input[name=typed]", "R-88123")
	m.choose(one, "button.danger", "Send again")
	one.at("/ui/calls/" + id)
	s.until(t, id, "sent again", func(c call) bool { return c.State == "unknown" && len(c.Attempts) == 2 })

	m.choose(two, "button.primary", "Record")
	two.until(`document.querySelector(".refusal")`)
	two.says("What does alipay say about attempt 2?")
	got := eval[[]string](two, `[document.querySelector("input[name=attempt]").value, document.querySelector("textarea").value, String(document.querySelector("input[name=outcome]:checked"))]`)
	if got[0] != "2" || got[1] != "seen in the console" || got[2] != "null" {
		t.Errorf("the form has attempt %q, reason %q, outcome %q", got[0], got[1], got[2])
	}
	t.Logf("refused: %s", eval[string](two, `document.querySelector(".refusal").innerText`))
	c := s.get(t, id)
	if c.State != "unknown" || len(c.Attempts) != 2 || len(c.Decisions) != 1 || c.Decisions[0].As != "unknown" {
		t.Errorf("the call is %+v", c)
	}
	two.clean("/resolve") // the 412 itself
	one.clean("/retry")

	// The decision about the attempt of now is taken.
	m.choose(two, "input[name=outcome]", "It was executed")
	m.choose(two, "button.primary", "Record")
	two.at("/ui/calls/" + id)
	s.reaches(t, id, "done")
	one.says("was executed by alipay")
}
