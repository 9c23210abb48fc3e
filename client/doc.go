// Package client calls the API of a cluster from Go: one method for each operation, with the types of package api.
//
//	tls, err := client.LoadTLS(client.Files{CA: "ca.pem", Cert: "cli-ops.pem", Key: "cli-ops-key.pem"})
//	c, err := client.New(client.Config{Addresses: []string{"https://10.0.0.1:7640", "https://10.0.0.2:7640"}, TLS: tls})
//	defer c.Close()
//	node, err := c.Nodes.Get(ctx, "n1", client.ReadOptions{})
//
// # What is retried
//
// A call goes to the server that answered last. If that server can't answer, the call goes to each of the others. If a
// server answers that the cluster can't carry out the call at the moment, for example during a change of leaders, the
// whole round is repeated for Config.RetryFor. If no server can be reached at all, the call fails after one round.
//
// Reads are safe to repeat. So are writes: each carries a request id, and the servers carry out a request with the same
// id only once. The restore of a snapshot is the exception: it is sent only once. A call is not repeated after an
// answer that will not change on its own, such as not_found. A stream is requested again only until its answer begins.
// If it breaks later, it ends with an error; only Events.Follow and Watch reconnect.
//
// # Errors
//
// Errors are *model.Error with a code, a message and usually a hint that says what to do next. An error with which a
// server answered is an *api.Problem, which wraps the *model.Error. It also has the log index and, if the rate of a
// budget was used up, the time to try again. Transient reports whether the same call may succeed later. The code
// unknown means that a write may have been carried out; send it again with the same WriteOptions.RequestID. If the
// context of a call ends, the error is the context's cause, but an expired deadline gives an error with the code
// timeout.
//
// # Time
//
// A context bounds a call as a whole. The answer of one server must begin within 15 s plus ReadOptions.Wait for a read,
// and within 40 s for a write. A stream has no limit after that. Opening a connection takes at most 5 s. A connection
// is closed if nothing is heard on it for 5 s, even in answer to a ping.
//
// # Concurrency
//
// A Client and its fields are safe for concurrent use, and keep connections between calls. Make one and share it. A
// value that a method returned belongs to the caller.
package client
