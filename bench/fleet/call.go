package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/transport"
)

// Get reads the JSON at path, which may have a query, into answer. It blocks and retries as transport.Client.Send does.
func Get(ctx context.Context, c *transport.Client, path string, answer any) error {
	_, err := call(ctx, c, http.MethodGet, path, nil, answer)
	return err
}

// Post sends body as JSON to path, which may have a query, and reads the JSON of the reply into answer. body and answer
// may be nil. Post returns the log index of the reply.
func Post(ctx context.Context, c *transport.Client, path string, body, answer any) (uint64, error) {
	return call(ctx, c, http.MethodPost, path, body, answer)
}

func call(ctx context.Context, c *transport.Client, method, path string, body, answer any) (uint64, error) {
	target, err := url.Parse(path)
	if err != nil {
		return 0, err
	}
	raw, index, err := c.Do(ctx, method, target.Path, target.Query(), body)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer != nil {
		err = json.Unmarshal(raw, answer)
	}
	return index, err
}
