// Package client calls the API of a cluster from Go: one method for each operation, with the types of package api.
//
//	tls, err := client.LoadTLS(client.Files{CA: "ca.pem", Cert: "cli-ops.pem", Key: "cli-ops-key.pem"})
//	c, err := client.New(client.Config{Addresses: []string{"https://10.0.0.1:7640", "https://10.0.0.2:7640"}, TLS: tls})
//	defer c.Close()
//	node, err := c.Nodes.Get(ctx, "n1", client.ReadOptions{})
//
// # What is retried
//
// A call goes to the server that answered last, then to each of the others. While none of them can answer for the
// cluster, for example during a change of leaders, the whole round is repeated for Config.RetryFor. Reads are safe to
// repeat. So are writes: each carries a request id, and the servers carry out a request with the same id only once. A
// call is not repeated after an answer that will not change on its own, such as not_found. The restore of a snapshot is
// sent only once. A stream that fails before its first byte is opened again. After that, only Events.Follow and Watch
// reconnect; other streams end with an error.
//
// # Errors
//
// Errors are *model.Error with a code, a message and usually a hint that says what to do next. If a server answered
// with an error, it is an *api.Problem, which wraps the *model.Error. An *api.Problem also has the log index and, for a
// budget, the time to try again. Transient reports whether the same call may succeed later. The code unknown says that
// a write may have been carried out; send it again with the same WriteOptions.RequestID. When the context of a call
// ends, the error is the context's cause; for a deadline it has the code timeout.
//
// # Time
//
// A context bounds a call as a whole. One attempt at one server takes at most 15 s for a read, plus ReadOptions.Wait,
// and 40 s for a write. A stream has no limit after its first byte. A connection is opened within 5 s, and given up
// when nothing was heard on it for 5 s.
//
// # Concurrency
//
// A Client and its fields are safe for concurrent use, and keep connections between calls. Make one and share it. A
// value that a method returned belongs to the caller.
package client
