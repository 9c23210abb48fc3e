# A server and an agent in one process, for one machine. tls { dir } makes its own certificates and gossip key there; only loopback can be
# bound. The agent keeps its part in /var/lib/outspan-agent.
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
