package web

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// TestSentence holds the sentence that a support desk reads about a call in each state, in each language.
func TestSentence(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	c := &api.CallFacts{
		ID: "7", Upstream: "alipay", Numbers: map[string]string{"order": "20261122001", "refund": "R-88123"},
		FinishedAt: api.At(now.Add(-time.Minute)), ETA: api.At(now.Add(8 * time.Minute)),
	}
	for state, want := range map[api.State][2]string{
		api.Waiting: {"Refund R-88123 of order 20261122001 waits, and goes to alipay in 8 min. It is not lost.", "订单 20261122001 的退款 R-88123 正在等待，8 分钟后发往 alipay。没有丢失。"},
		api.Done:    {"Refund R-88123 of order 20261122001 was executed by alipay, 60 s ago.", "订单 20261122001 的退款 R-88123 已由 alipay 执行，60 秒前。"},
		api.Unknown: {
			"Refund R-88123 of order 20261122001 was sent to alipay 41 min ago, and there is no clear answer: it may have been executed. A person has to decide. It is not lost, and is not sent again without that.",
			"订单 20261122001 的退款 R-88123 于 41 分钟前发往 alipay，没有明确应答：可能已执行。需人工处理。没有丢失，未经处理不会再次发送。",
		},
	} {
		c.State = state
		for i, tag := range tags {
			if got := speeches("")[tag.String()].sentence(c, api.At(now.Add(-41*time.Minute)), now); got != want[i] {
				t.Errorf("%s, %s: %s\nwant %s", state, tag, got, want[i])
			}
		}
	}
}

// TestLanguage holds which language a browser gets.
func TestLanguage(t *testing.T) {
	all := speeches("")
	for header, want := range map[string]string{
		"": "en", "en-GB,en;q=0.9": "en", "zh-CN,zh;q=0.9,en;q=0.8": "zh-Hans", "zh": "zh-Hans", "fr,zh;q=0.5": "zh-Hans", "fr": "en", strings.Repeat("x,", 2000): "en",
	} {
		r := httptest.NewRequest("GET", "/ui/", nil)
		r.Header.Set("Accept-Language", header)
		if got := speechOf(all, r).tag; got != want {
			t.Errorf("Accept-Language %.40q: %s, want %s", header, got, want)
		}
		r.Header.Set("Cookie", languageCookie+"=zh-Hans")
		if got := speechOf(all, r).tag; got != "zh-Hans" {
			t.Errorf("the choice of the person is not taken: %s", got)
		}
	}
}
