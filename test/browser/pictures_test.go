package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "the folder to which the pictures of the pages are written")

// maxPicture is the greatest size of a picture, in bytes.
const maxPicture = 150_000

// TestPictures writes pictures of pages: make pictures.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		return // pages change with each run, and so would the files
	}
	s := newScene(t, "calls: 10000, window: 1s", "calls: 20, window: 1m", "calls: 1, window: 1h", "calls: 5, window: 1m", "max_waiting: 10\n", "max_waiting: 10000\n")
	third := s.submit(t, "/lost/payouts", body{"order": "20261122060", "key": "2021002", "flow": "shop12"})
	s.reaches(t, third, "unknown")
	shops := []string{"shop7", "shop1", "shop12"}
	for i := range 360 {
		path, b := "/pay", body{"order": fmt.Sprintf("20261122%03d", 100+i), "key": fmt.Sprintf("202100%d", 1+i%5%3), "flow": shops[i%3]}
		if i%3 == 0 {
			path, b["refund"] = "/refunds", fmt.Sprintf("R-%d", 88200+i)
		}
		s.submit(t, path, b)
		if i%9 == 0 {
			s.submit(t, "/pay", body{"order": fmt.Sprintf("42000019%03d", i)}, "upstream", "wechat")
		}
	}
	waiting := s.submit(t, "/refunds", body{"order": "20261122077", "refund": "R-88640", "key": "2021001", "flow": "shop7"})
	b := newTab(t, s.admin, look{"en", "light", 1280, 860})
	for name, path := range map[string]string{
		"overview": "/ui/", "decide": "/ui/decide", "call": "/ui/calls/" + waiting, "limit": "/ui/upstreams/alipay/limits/app",
	} {
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"})
			return err
		}))
		b.open(path)
		b.until(`document.getElementById("connection").dataset.state === "live"`)
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		content, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		content = small(t, content)
		if len(content) > maxPicture {
			t.Errorf("%s.png has %d bytes, at most %d", name, len(content), maxPicture)
		}
		if err := os.WriteFile(filepath.Join(*pictures, name+".png"), content, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s.png: %d bytes", name, len(content))
	}
}

// small writes a picture with the 256 colours that it has most of: a page has few.
func small(t *testing.T, content []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	bounds, count := picture.Bounds(), make(map[color.Color]int)
	var palette color.Palette
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := picture.At(x, y)
			if count[c]++; count[c] == 40 && len(palette) < 256 {
				palette = append(palette, c)
			}
		}
	}
	out := image.NewPaletted(bounds, palette)
	draw.Draw(out, bounds, picture, bounds.Min, draw.Src)
	var buffer bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buffer, out); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}
