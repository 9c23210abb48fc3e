// Package client calls the API of a cluster from Go: one method for each operation, with the types of package api.
//
//	tls, err := client.LoadTLS(client.Files{CA: "ca.pem", Cert: "cli-ops.pem", Key: "cli-ops-key.pem"})
//	c, err := client.New(client.Config{Addresses: []string{"https://10.0.0.1:7640", "https://10.0.0.2:7640"}, TLS: tls})
//	defer c.Close()
//	node, err := c.Nodes.Get(ctx, "n1", client.ReadOptions{})
//
// # What is retried
//
// A call goes to the server that answered last, then to each other one. While none of them can answer for the cluster,
// as when leadership changes, the whole is repeated for Config.RetryFor. Reads are safe to repeat. So are writes: each
// carries a request id, and the servers carry out one request with one id once. A call is not repeated after an answer
// that will not change by itself, such as not_found. A snapshot is restored once, and a stream is opened again only
// until its first byte: Events.Follow and Watch go on afterwards, the others end.
//
// # Errors
//
// Errors are *model.Error with a code, a message and most often a hint: what to do next. Those that a server answered
// are *api.Problem around it, which also has the index and, for a budget, when to try again. Transient tells which may
// pass. The code unknown says that a write may have been carried out: send it again with the same
// WriteOptions.RequestID. When the context of a call ends, its cause is the error; a deadline is the code timeout.
//
// # Time
//
// A context bounds a call as a whole. One attempt at one server takes at most 15 s for a read, plus ReadOptions.Wait,
// and 40 s for a write. A stream has no limit after its first byte. Connections are opened within 5 s, and one on which
// nothing was heard for 5 s is given up.
//
// # Concurrency
//
// A Client and its nouns are safe for many goroutines, and keep connections between calls. Make one and share it. A
// value that a method returned belongs to the caller.
package client
