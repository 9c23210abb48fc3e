// Package trust decides who belongs to a cluster that makes its certificates itself (tls { managed = true }).
//
// On a server, Engine puts the cluster's first keys into the replicated state, admits newcomers that have a join token,
// renews certificates, and refuses peers that were revoked. On an agent, Agent renews the agent's certificate. Revive
// replaces certificates that expired while a server was off. DESIGN.md explains the choices.
package trust
