package upstream

import (
	"net/http"
	"net/url"
	"strings"
)

// An Answer is the answer to a request, for expressions of [CompileQuestion]. It belongs to one
// goroutine.
type Answer struct{ *answer }

// NewAnswer returns an answer that was kept, with its body as it came; truncated: the body goes on.
func NewAnswer(status int, header http.Header, body []byte, truncated bool) *Answer {
	return &Answer{newAnswer(status, header, body, truncated, DefaultMaxInspect)}
}

// NewQuestion returns the Input of a request to an upstream with the answer to it, nil if there is
// none.
func NewQuestion(u *Upstream, r *Request, a *Answer) *Input {
	in := NewInput(r)
	in.up = u
	if a != nil {
		in.reply = a.answer
	}
	return in
}

// CompileQuestion compiles an expression of a query about a call of unknown outcome. Beside the
// variables of a request expression it has those of the answer to the call: status, 0 without an answer,
// body(path), nil without one, answer_header(name), because header is the request's, and location: the target to
// which the answer's Location leads. See [NewQuestion].
func CompileQuestion(source string, kind Kind) (*Expr, error) {
	program, err := compile(source, questionEnv{}, kind)
	return &Expr{source: source, program: program, question: true}, err
}

// questionEnv has the variables of the expressions of queries.
type questionEnv struct {
	requestEnv
	Status       int                       `expr:"status"`
	Body         func(string) (any, error) `expr:"body"`
	AnswerHeader func(string) string       `expr:"answer_header"`
	Location     func() (string, error)    `expr:"location"` // written as a variable
}

// question returns the variables of the expressions of queries.
func question(in *Input) any {
	a := in.reply
	if a == nil {
		a = &answer{kind: isOther}
	}
	return questionEnv{in.variables().(requestEnv), a.status, a.value, a.header.Get, func() (string, error) { return location(in) }}
}

// location returns the target to which the Location of the answer leads (RFC 9110, section
// 10.2.2). One that leads elsewhere is an error: a query goes to the upstream, with what its caller
// or its signer puts into it. Another scheme of the same host is taken, for gateways that end
// TLS are often named so.
func location(in *Input) (string, error) {
	if in.reply == nil || in.up == nil {
		return "", unclear("there is no answer to it")
	}
	text := in.reply.header.Get("Location")
	if text == "" {
		return "", unclear("the answer to it has no Location")
	}
	base := in.up.base
	at, err := url.Parse(base.Scheme + "://" + base.Host + base.Path + in.r.Target)
	if err != nil {
		return "", unclear("its own target is no URL")
	}
	to, err := at.Parse(text)
	if err != nil {
		return "", unclear("the Location of the answer to it is no URL")
	}
	if to.Port() == "" && base.Port() == "" {
		to.Scheme = base.Scheme
	}
	if !strings.EqualFold(hostPort(to), hostPort(base)) {
		return "", unclear("the Location of the answer to it leads to another host, and queries go to the upstream's own only")
	}
	to.Scheme = base.Scheme
	target, ok := in.up.Target(to)
	if !ok {
		return "", unclear("the Location of the answer to it leads out of the path of the upstream's url")
	}
	return target, nil
}
