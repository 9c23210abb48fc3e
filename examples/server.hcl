# One of three servers of a cluster with a CA of your own. Their files differ only in name, address and certificate.
# Without one, outspan up and outspan join write the file: see managed.hcl.
#
#   outspan server run --config /etc/outspan.d

name     = "s1"
data_dir = "/var/lib/outspan"

server {
  bootstrap_expect = 3 # three new servers found a cluster together
  retry_join       = ["10.0.0.1:7642", "10.0.0.2:7642", "10.0.0.3:7642"]
}

listen {
  address     = "0.0.0.0"
  port        = 7640 # API and raft, both over TLS
  gossip_port = 7642 # UDP and TCP
  socket      = "/run/outspan/api.sock"
}

advertise {
  address = "10.0.0.1" # or a template, such as "{{ GetPrivateIP }}"
}

# outspan tls ca create --dir /etc/outspan.d/tls
# outspan tls cert create --dir /etc/outspan.d/tls --server s1
tls {
  ca_file   = "/etc/outspan.d/tls/ca.pem"
  cert_file = "/etc/outspan.d/tls/server-s1.pem"
  key_file  = "/etc/outspan.d/tls/server-s1-key.pem"
}

# outspan gossip key create /etc/outspan.d/gossip.key
gossip {
  key_file = "/etc/outspan.d/gossip.key"
  profile  = "lan" # lan | wan | fast
}

# The cluster's first settings. Change them later with: outspan settings set
settings {
  offline_after  = "60s"
  drain_deadline = "1h"
}

log {
  level  = "info"
  format = "json"
}

limits {
  requests_per_second = 200
}

# audit {
#   file     = "/var/log/outspan/audit.log" # who wrote, revealed or was refused what; 0600
#   max_size = "64MiB"
#   keep     = 10
#   required = true # refuse what can't be recorded
# }
