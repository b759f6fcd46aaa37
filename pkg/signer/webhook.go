package signer

import (
	"context"
	"errors"
	"fmt"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// NewWebhook returns a signer by Standard Webhooks (standardwebhooks.com). The
// reference must name a secret of the form whsec_ and base64. The request must
// have a webhook-id; the time stamp is that of the attempt.
func NewWebhook(reference string) (upstream.Signer, error) {
	secret, err := Secret(reference)
	if err != nil {
		return nil, err
	}
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, fmt.Errorf("%s holds no secret of Standard Webhooks: whsec_ and base64", reference)
	}
	return &webhook{hook}, nil
}

type webhook struct{ hook *standardwebhooks.Webhook }

func (s *webhook) Sign(_ context.Context, r *upstream.Request) error {
	id, now := r.Header.Get(standardwebhooks.HeaderWebhookID), time.Now()
	if id == "" {
		return errors.New("the request has no webhook-id")
	}
	signature, err := s.hook.Sign(id, now, r.Body)
	if err != nil {
		return errors.New("the webhook cannot be signed")
	}
	setHeader(r, standardwebhooks.HeaderWebhookTimestamp, fmt.Sprint(now.Unix()))
	setHeader(r, standardwebhooks.HeaderWebhookSignature, signature)
	return nil
}
