package ledger

import "strings"

// gateway returns the answer of a proxy in between in the place of the platform's. It may have the
// status of success: a page, nothing, half of the answer, or the answer of another service. The preset
// generic knows no format, so its proxies say what they are.
func (p *Platform) gateway(a Answer, pick int) Answer {
	page := map[string]string{"Content-Type": "text/html"}
	if pick%2 == 0 || p.Preset == "generic" {
		return Answer{[]int{500, 502, 504}[pick/2%3], page, "<html>Bad Gateway</html>"}
	}
	switch pick / 2 % 5 {
	case 0:
		return Answer{200, page, "<!DOCTYPE html><html><head><title>OK</title></head><body>OK</body></html>"}
	case 1:
		return Answer{200, a.Header, ""}
	case 2:
		return Answer{200, a.Header, a.Body[:len(a.Body)/2]}
	case 3:
		return Answer{200, map[string]string{"Content-Type": "application/json"}, `{"ok":true}`}
	}
	return Answer{200, a.Header, strings.NewReplacer(`"SUCCESS"`, `1`, `"succeeded"`, `1`, `"COMPLETED"`, `1`, `"S"`, `1`, `"Y"`, `1`, `"Authorised"`, `1`,
		`"approved"`, `1`, `"processed"`, `1`, `"10000"`, `1`, `>SUCCESS<`, `>1<`).Replace(a.Body)}
}
