// Package pki handles the identity of a process: the cluster, role and name in its certificate. It loads a certificate
// from files, and makes the TLS configurations for connections to the cluster's processes. Both transport and client
// use it, so that they read and check certificates alike.
package pki
