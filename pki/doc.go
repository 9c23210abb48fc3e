// Package pki says who a process is to the others: the cluster, role and name in its certificate. It loads a
// certificate from files, and makes the TLS configurations of connections to the cluster's processes. It is below
// transport and client, so that both read and check certificates alike.
package pki
