# A server and an agent in one process, for one machine. With tls { dir }, certificates and the gossip key are made in
# that directory, and only loopback addresses are allowed. The agent's data is in /var/lib/outspan-agent.
#
#   outspan server run --config single.hcl

name     = "one"
data_dir = "/var/lib/outspan"

server {
  bootstrap_expect = 1
}

agent {}

listen {
  address = "127.0.0.1"
  socket  = "/run/outspan/api.sock"
}

tls {
  dir = "/var/lib/outspan-tls"
}
