package answers_test

import (
	"path/filepath"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

func TestAnswers(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		all, err := config.LoadCases(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, c := range all {
			for _, failure := range cases.Play(c).Failures {
				t.Errorf("%s: %s: %s", c.Place, c.Name, failure)
			}
		}
	}
}
