package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds an answer between servers: the ages of some hundred thousand nodes.
const maxAnswer = 16 << 20

// HTTPAsker is the Asker of real servers: it posts each question to the API of the other one.
type HTTPAsker struct {
	// Client opens the connections, with this server's certificate (transport.Dialer.HTTPTransport).
	Client http.RoundTripper
	// Path is where questions are answered; the name of the question is put after it.
	Path string
}

// AskPeer implements Asker.
func (h HTTPAsker) AskPeer(ctx context.Context, address, question string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+h.Path+question, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/cbor")
	resp, err := h.Client.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s at %s: %w", question, address, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask %s at %s: %w", question, address, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s at %s: %s", question, address, resp.Status)
	}
	return answer, nil
}
