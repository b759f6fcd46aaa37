package web

import (
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"

	"github.com/nicksnyder/go-i18n/v2/i18n"
	"golang.org/x/text/language"
)

// tags are those of the languages that the pages speak. The first is for browsers that ask for
// none of them.
var tags = []language.Tag{language.English, language.SimplifiedChinese}

// A speech is a language with the templates that write it.
type speech struct {
	tag       string // BCP 47
	localizer *i18n.Localizer
	templates map[string]*template.Template // by name
}

// speeches reads the texts and the templates, some 6 MB. A fault in them is one of the program.
func speeches(prefix string) map[string]*speech {
	bundle := i18n.NewBundle(tags[0])
	all := make(map[string]*speech)
	for _, tag := range tags {
		name := tag.String()
		if _, err := bundle.LoadMessageFileFS(files, "text/"+name+".json"); err != nil {
			panic("BUG: " + err.Error())
		}
		s := &speech{tag: name, localizer: i18n.NewLocalizer(bundle, name), templates: make(map[string]*template.Template)}
		frame := template.Must(template.New("").Funcs(s.funcs(prefix)).ParseFS(files, "templates/frame/*.html"))
		pages, err := files.ReadDir("templates")
		if err != nil {
			panic("BUG: " + err.Error())
		}
		for _, page := range pages {
			if name, ok := strings.CutSuffix(page.Name(), ".html"); ok {
				s.templates[name] = template.Must(template.Must(frame.Clone()).ParseFS(files, path.Join("templates", page.Name())))
			}
		}
		all[name] = s
	}
	return all
}

var matcher = language.NewMatcher(tags)

// speechOf returns the language of a request: the one that the person has chosen, or that of the
// browser.
func speechOf(all map[string]*speech, r *http.Request) *speech {
	if c, err := r.Cookie(languageCookie); err == nil && all[c.Value] != nil {
		return all[c.Value]
	}
	wanted, _, _ := language.ParseAcceptLanguage(r.Header.Get("Accept-Language"))
	_, i, _ := matcher.Match(wanted...)
	return all[tags[i].String()]
}

// text returns a text by its id. The values follow as pairs of a name and a value; a number
// alone chooses the plural.
func (s *speech) text(id string, values ...any) (string, error) {
	c := &i18n.LocalizeConfig{MessageID: id}
	switch {
	case len(values) == 1:
		c.PluralCount = values[0]
		c.TemplateData = map[string]any{"N": s.number(values[0])}
	case len(values)%2 != 0:
		return "", fmt.Errorf("text %s: %d values are no pairs", id, len(values))
	default:
		data := make(map[string]any)
		for i := 0; i < len(values); i += 2 {
			name := values[i].(string)
			if name == "N" {
				c.PluralCount = values[i+1]
				data["N"] = s.number(values[i+1])
				continue
			}
			data[name] = values[i+1]
		}
		c.TemplateData = data
	}
	return s.localizer.Localize(c)
}

// mustText is text where id and values are constants of the program.
func (s *speech) mustText(id string, values ...any) string {
	text, err := s.text(id, values...)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return text
}
