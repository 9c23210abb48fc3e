# A worker machine.
#
#   outspan agent run --config /etc/outspan.d

name     = "n1"
data_dir = "/var/lib/outspan"

agent {
  servers = ["10.0.0.1:7640", "10.0.0.2:7640", "10.0.0.3:7640"]
  labels = {
    rack = "r1"
    disk = "ssd"
  }
  reserve {
    cpu    = 200
    memory = "256MiB" # for the machine itself
  }
  # allow_users = ["postgres", "redis"] # job files may name these users alone; by default any but root
  # min_uid     = 1000                  # and any from this number on
  # instance_uids = "2000000-2065535"   # of instances whose job file names no user; by default 2100000000-2100065535, "off": they share nobody
  # volume_paths = ["/data", "/mnt", "/opt", "/srv", "/tmp", "/var/tmp"] # where a volume's path is made when it is missing; this is the default
  on_shutdown = "keep" # instances go on when the agent stops; "drain" empties the node first
}

listen {
  address     = "0.0.0.0"
  port        = 7640
  gossip_port = 7642
}

advertise {
  address = "10.0.0.11"
}

# outspan tls cert create --dir /etc/outspan.d/tls --agent n1
tls {
  ca_file   = "/etc/outspan.d/tls/ca.pem"
  cert_file = "/etc/outspan.d/tls/agent-n1.pem"
  key_file  = "/etc/outspan.d/tls/agent-n1-key.pem"
}

gossip {
  key_file = "/etc/outspan.d/gossip.key"
}
