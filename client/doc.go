// Package client calls the API of a cluster from Go: one method for each operation, with the types of package api.
//
//	tls, err := client.LoadTLS(client.Files{CA: "ca.pem", Cert: "cli-ops.pem", Key: "cli-ops-key.pem"})
//	c, err := client.New(client.Config{Addresses: []string{"https://10.0.0.1:7640", "https://10.0.0.2:7640"}, TLS: tls})
//	defer c.Close()
//	node, err := c.Nodes.Get(ctx, "n1", client.ReadOptions{})
//
// # What is retried
//
// A call tries one server after another until a server gives a final answer, beginning with the server that answered
// last. If a server answers that the cluster can't carry out the call at the moment, for example during a change of
// leaders, the whole round is repeated for Config.RetryFor. If no server can be reached at all, the call fails after
// one round.
//
// Reads are safe to repeat. Writes are safe too, because each has a request id, and the servers carry out a request
// with the same id only once. The only exception is the restore of a snapshot: once a server may have carried it out,
// the client does not send it again. A call is not repeated after an answer that will not change on its own, such as
// not_found. The request for a stream is repeated only until the answer begins. A stream that breaks later returns an
// error. Only Events.Follow reconnects by itself.
//
// # Errors
//
// An error is a *model.Error with a code, a message and usually a hint that says what to do next. If a server answered
// with the error, it is an *api.Problem that wraps the *model.Error. A Problem also has the log index and, if the rate
// of a budget was used up, the time to try again. Transient reports whether the same call may succeed later. The code
// unknown means that a write may have been carried out; send it again with the same WriteOptions.RequestID. If the
// deadline of a call's context expires, the error has the code timeout. If the context is canceled, the error is the
// context's cause.
//
// # Time
//
// A context limits a call as a whole. The answer of one server must begin within 15 s plus ReadOptions.Wait for a read,
// and within 40 s for a write (10 min for the restore of a snapshot). The client does not limit how long a stream lasts
// after that, but servers end streams of events and logs after an hour. Opening a connection takes at most 5 s. A
// connection is closed if nothing arrives on it for 5 s, not even the answer to a ping.
//
// # Concurrency
//
// A Client and its fields are safe for concurrent use, and keep connections open between calls. Make one Client and
// share it. The caller owns the values that methods return.
package client
