// Package pki handles the identity of a process: the cluster, role and name in its certificate. It loads a certificate
// from files, and makes the TLS configurations for connections to the cluster's processes. Both transport and client
// use it, so that they read and check certificates alike.
//
// A machine that has no certificate yet joins with a JoinToken: JoinConfig recognises a server by it, and NewRequest
// asks for a certificate.
package pki
