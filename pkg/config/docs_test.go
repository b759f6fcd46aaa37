package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestConfigurationsOfThePages reads each configuration of the documentation. Blocks
// without upstreams are parts of one, and are skipped.
func TestConfigurationsOfThePages(t *testing.T) {
	t.Setenv("SHOP_SECRET", "whsec_c2hvcHNob3BzaG9wc2hvcHNob3BzaG9w")
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md")
	read := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
			if !strings.Contains(string(block[1]), "upstreams:") {
				continue
			}
			read++
			if _, err := config.Parse(block[1]); err != nil {
				t.Errorf("%s:\n%s%v", page, block[1], err)
			}
		}
	}
	if read < 3 {
		t.Errorf("%d configurations were read; README has two and docs/http.md one", read)
	}
}
