package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

// dial starts a server on a unix socket whose handler is answers, and returns a client of the server. done stops both.
func dial(answers http.Handler) (c *client.Client, done func()) {
	dir, err := os.MkdirTemp("", "outspan-example")
	if err != nil {
		panic(err)
	}
	socket := filepath.Join(dir, "api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	server := httptest.NewUnstartedServer(answers)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	c, err = client.New(client.Config{Addresses: []string{"unix://" + socket}})
	if err != nil {
		panic(err)
	}
	return c, func() {
		c.Close()
		server.Close()
		_ = os.RemoveAll(dir)
	}
}

// answer writes a server's answer: value as JSON, and the index of the state in a header.
func answer(w http.ResponseWriter, index string, value any) {
	w.Header().Set(api.HeaderIndex, index)
	_ = json.NewEncoder(w).Encode(value)
}

func Example() {
	servers := http.NewServeMux()
	servers.HandleFunc("GET /v1/nodes/n1", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, "12", api.Node{Name: "n1", State: "active", Instances: 3})
	})
	servers.HandleFunc("POST /v1/nodes/n1/cordon", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "13", api.NodeReply{Written: api.Written{Index: 13, RequestID: r.FormValue("request_id")}})
	})
	c, done := dial(servers)
	defer done()
	ctx := context.Background()

	node, err := c.Nodes.Get(ctx, "n1", client.ReadOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s is %s with %d instances at index %d\n", node.Value.Name, node.Value.State,
		node.Value.Instances, node.Index)

	reply, err := c.Nodes.Cordon(ctx, "n1", api.IntentBody{Reason: "new disk"}, client.WriteOptions{RequestID: "disk-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("cordoned by request %s at index %d\n", reply.Value.RequestID, reply.Value.Index)
	// Output:
	// n1 is active with 3 instances at index 12
	// cordoned by request disk-1 at index 13
}

// An error has a code for programs and a hint for people.
func Example_errors() {
	c, done := dial(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := api.NewProblem(model.Refuse(model.CodeBudgetRate, "web/http may lose no more for now").
			WithHint("try again at 12:00"))
		w.Header().Set("Content-Type", api.ContentTypeProblem)
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)
	}))
	defer done()

	_, err := c.Instances.Evict(context.Background(), "3k9f", api.EvictBody{}, client.WriteOptions{})
	fmt.Println(err)
	fmt.Println("try again later:", client.Transient(err))
	// Output:
	// web/http may lose no more for now (budget_rate): try again at 12:00
	// try again later: true
}

// All reads a list page by page.
func ExampleNodes_All() {
	c, done := dial(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("next") == "" {
			answer(w, "12", map[string]any{"items": []api.Node{{Name: "n1"}, {Name: "n2"}}, "index": 12, "next": "n2"})
			return
		}
		answer(w, "12", map[string]any{"items": []api.Node{{Name: "n3"}}, "index": 12})
	}))
	defer done()

	for node, err := range c.Nodes.All(context.Background(), client.ListOptions{PageSize: 2}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(node.Name)
	}
	// Output:
	// n1
	// n2
	// n3
}

// Watch yields an object each time it changes. This example follows a drain until its node is drained.
func ExampleWatch() {
	c, done := dial(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("index") == "" {
			answer(w, "20", api.Drain{ID: "d1", Phase: model.PhaseDraining})
			return
		}
		answer(w, "21", api.Drain{ID: "d1", Phase: model.PhaseDrained})
	}))
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	drain := func(ctx context.Context, o client.ReadOptions) (client.Response[api.Drain], error) {
		return c.Drains.Get(ctx, "d1", o)
	}
	for got, err := range client.Watch(ctx, drain, client.WatchOptions{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s at index %d\n", got.Value.Phase, got.Index)
		if got.Value.Phase != model.PhaseDraining {
			break
		}
	}
	// Output:
	// draining at index 20
	// drained at index 21
}

// Follow yields events as they happen.
func ExampleEvents_Follow() {
	c, done := dial(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		to := json.NewEncoder(w)
		_ = to.Encode(api.Event{ID: "7.0", Type: "node.cordoned", Subject: "node/n1"})
		_ = to.Encode(api.Event{ID: "8.0", Type: "drain.started", Subject: "drain/d1"})
	}))
	defer done()

	for event, err := range c.Events.Follow(context.Background(), client.EventOptions{After: "6.0"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Value.ID, event.Value.Type, event.Value.Subject)
		if event.Value.Type == "drain.started" {
			break
		}
	}
	// Output:
	// 7.0 node.cordoned node/n1
	// 8.0 drain.started drain/d1
}
