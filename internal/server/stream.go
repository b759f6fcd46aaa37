package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tmaxmax/go-sse"
)

// eventTimeout is the time in which a client must take a batch of events.
var eventTimeout = 10 * time.Second

// A stream writes Server-Sent Events.
type stream struct {
	session  *sse.Session
	deadline *http.ResponseController
	timeout  time.Duration
	err      error // the first one
}

func newStream(w http.ResponseWriter, r *http.Request) (*stream, error) {
	session, err := sse.Upgrade(w, r)
	if err != nil {
		return nil, err
	}
	return &stream{session: session, deadline: http.NewResponseController(w), timeout: eventTimeout}, nil
}

// send writes an event. Its data is a type of internal/api.
func (s *stream) send(kind, id string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		s.err = err
		return
	}
	m := &sse.Message{Type: sse.Type(kind)}
	if id != "" {
		m.ID = sse.ID(id)
	}
	m.AppendData(string(text))
	s.write(m)
}

func (s *stream) comment(text string) {
	m := &sse.Message{}
	m.AppendComment(text)
	s.write(m)
}

func (s *stream) write(m *sse.Message) {
	if s.err == nil {
		s.deadline.SetWriteDeadline(time.Now().Add(s.timeout))
		s.err = s.session.Send(m)
	}
}

// flush sends the written events. Its error means that the client has disconnected. No deadline is left: that of net/http
// would end an HTTP/2 stream on which nothing is written.
func (s *stream) flush() error {
	if s.err == nil {
		s.err = s.session.Flush()
		s.deadline.SetWriteDeadline(time.Time{})
	}
	return s.err
}
