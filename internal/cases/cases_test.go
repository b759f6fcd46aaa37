package cases_test

import (
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// wrong are cases with one fault each, whose source is the failure that it must give.
const wrong = `
preset: wechatpay-v3
signed: true
requests:
  pay: {target: /v3/pay/transactions/codepay, body: '{"mchid":"190","out_trade_no":"T1"}'}
  other: {target: /v3/pay/transactions/codepay, body: '{"mchid":"190","out_trade_no":"T1","amount":{"total":1}}'}
  refund: {target: /v3/refund/domestic/refunds, body: '{"out_refund_no":"R1"}'}
answers:
  typing: {body: '{"trade_state":"USERPAYING"}'}
  paid: {body: '{"trade_state":"SUCCESS"}'}
  absent: {status: 404, body: '{"code":"RESOURCE_NOT_EXISTS"}'}
  limited: {status: 429, body: '{"code":"RATELIMIT_EXCEEDED"}'}
  later: {status: 429, headers: {Retry-After: '7'}, body: '{"code":"RATELIMIT_EXCEEDED"}'}
  at ten: {status: 429, headers: {Retry-After: 'Sun, 29 Nov 2026 10:00:09 GMT'}, body: '{"code":"RATELIMIT_EXCEEDED"}'}
cases:
- {case: outcome, request: pay, answer: typing, outcome: done, source: 'outcome: want done, got unknown ('}
- {case: nothing, request: pay, answer: paid, then: query, source: 'then: want query, got nothing'}
- {case: query, request: pay, answer: typing, then: person, source: 'then: want person, got query'}
- {case: person, request: pay, signed: false, answer: typing, then: query, source: 'then: want query, got person'}
- {case: repeat, request: refund, answer: limited, then: again, source: 'then: want again, got repeat'}
- {case: again, request: pay, answer: limited, then: alone, source: 'then: want alone, got again'}
- {case: after, request: refund, answer: limited, then: repeat, after: 1h, source: 'after: want 1h0m0s, got 1m'}
- {case: wait, request: refund, answer: limited, then: repeat, wait: 1h, source: 'wait: want 1h0m0s, got 1m'}
- {case: waits longer, request: pay, answer: later, then: again, wait: 6s, source: 'wait: want 6s, got 7s'}
- {case: waits shorter, request: pay, answer: later, then: again, wait: 8s, source: 'wait: want 8s, got 7s'}
- {case: before, request: pay, answer: later, then: again, before: 7s, source: 'before: want less than 7s, got 7s'}
- {case: by the time of the case, now: '2026-11-29T10:00:00Z', request: pay, answer: at ten, then: again, wait: 1s, source: 'wait: want 1s, got 9s'}
- {case: no query, request: pay, answer: paid, query_to: /v3, source: 'query_to: want /v3, got no query'}
- {case: target, request: pay, answer: typing, query_to: /v3/x, source: 'query_to: want /v3/x, got /v3/pay/transactions/out-trade-no/T1?mchid=190'}
- {case: decides, request: pay, query: typing, decides: done, source: 'decides: want done, got unknown ('}
- {case: decides anew, request: refund, query: absent, decides: unknown, source: 'decides: want unknown, got again ('}
- {case: decides nothing, request: pay, signed: false, query: typing, decides: unknown, source: 'decides: want unknown, got no query ('}
- {case: answered, request: pay, answer: paid, second: pay, becomes: sent, source: 'becomes: want sent, got answered'}
- {case: refused, request: pay, answer: paid, second: other, becomes: answered, source: 'becomes: want answered, got refused ('}
- {case: sent, request: pay, answer: 400, second: pay, becomes: refused, source: 'becomes: want refused, got sent'}
- {case: repeatable, request: pay, repeatable: true, source: 'repeatable: want true, got false'}
- {case: identity, request: pay, identity: pay T1, source: 'identity: want "pay T1", got "pay 190  T1"'}
- {case: ends, request: pay, ends: pay T1, source: 'ends: want "pay T1", got ""'}
- {case: numbers, request: pay, numbers: {order: T2}, source: 'numbers: want order "T2", got order "T1"'}
- {case: no numbers, request: pay, numbers: {}, source: 'numbers: want none, got order "T1"'}
- {case: a query more, request: pay, exchanges: [{sent: request, answer: typing}], state: done, source: 'exchanges: want request, got request, query'}
- {case: a query less, request: pay, exchanges: [{sent: request, answer: paid}, {sent: query, answer: paid}], state: done, source: 'exchanges: want request, query, got request'}
- {case: a query later, request: pay, exchanges: [{sent: request, answer: typing}, {sent: query, answer: paid, after: 1h}], state: done, source: 'exchanges[1].after: want 1h0m0s, got 5s'}
- {case: a query elsewhere, request: pay, exchanges: [{sent: request, answer: typing}, {sent: query, answer: paid, query_to: /v3/x}], state: done, source: 'exchanges[1].query_to: want /v3/x, got /v3/pay'}
- {case: state, request: pay, exchanges: [{sent: request, answer: typing}, {sent: query, answer: paid}], state: failed, source: 'state: want failed, got done'}
`

// TestFailures: each member of a case is compared.
func TestFailures(t *testing.T) {
	all, err := config.ParseCases("wrong_test.yaml", []byte(wrong))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		failures := cases.Play(c).Failures
		if len(failures) == 0 || !strings.HasPrefix(failures[0], c.Source) {
			t.Errorf("%s: %q, want %q", c.Name, failures, c.Source)
		}
	}
}
