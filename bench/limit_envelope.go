package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// envelope is an HTTPS server around a function of the benchmark. It has the same listener, TLS, certificates and HTTP
// settings as the real servers.
type envelope struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func startEnvelope(ctx context.Context, ca *transport.Authority, address string,
	handle func(path string) error) (*envelope, error) {
	creds, err := ca.Credentials(pki.RoleServer, "envelope")
	if err != nil {
		return nil, err
	}
	raw, err := transport.ListenTCP(ctx, address)
	if err != nil {
		return nil, err
	}
	listener, err := transport.NewListener(raw, transport.ListenerConfig{Credentials: creds})
	if err != nil {
		return nil, err
	}
	server := transport.NewHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20))
		if err == nil {
			err = handle(r.URL.Path)
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"index":1}`) // an error means that the client is gone
	}), transport.HTTPConfig{})
	ctx, stop := context.WithCancel(ctx)
	e := &envelope{stop: stop}
	// The errors can be ignored: if the listener or the server fails, the requests of the measurement fail too.
	e.wg.Go(func() { _ = listener.Run(ctx) })
	e.wg.Go(func() { _ = server.Run(ctx, listener.API()) })
	return e, nil
}

// Close stops the server and waits for its goroutines.
func (e *envelope) Close() {
	e.stop()
	e.wg.Wait()
}

// perConnection is the number of clients that share one connection.
const perConnection = 8

// postLoad measures clients that send POST requests, each with a request id, to the server at address. post returns the
// path and the body of the n-th request. The connections are opened before the measurement.
func postLoad(ctx context.Context, creds *transport.Credentials, address string, clients int, length time.Duration,
	post func(n int64) (path string, body any)) (loadResult, error) {
	var via []*transport.Client
	defer func() {
		for _, c := range via {
			c.Close()
		}
	}()
	for range (clients + perConnection - 1) / perConnection {
		c, err := transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + address}, Credentials: creds})
		if err != nil {
			return loadResult{}, err
		}
		via = append(via, c)
	}
	var n atomic.Int64
	var opened errgroup
	for _, c := range via {
		opened.do(func() error {
			path, body := post(n.Add(1))
			_, err := fleet.Post(ctx, c, path, body, nil)
			return err
		})
	}
	if err := opened.wait(); err != nil {
		return loadResult{}, fmt.Errorf("open %d connections: %w", len(via), err)
	}
	result, err := load(ctx, clients, length, func(ctx context.Context, client int) error {
		path, body := post(n.Add(1))
		_, err := fleet.Post(ctx, via[client/perConnection], path, body, nil)
		return err
	})
	if err != nil {
		return result, fmt.Errorf("load of %d clients: %w", clients, err)
	}
	return result, nil
}
