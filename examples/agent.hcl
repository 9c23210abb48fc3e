# A worker machine of a cluster with a CA of your own. Without one, outspan join writes the file: see managed.hcl. Its
# agent block may have all keys that this one has.
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
  # allow_users = ["postgres", "redis"] # job files may name only these users; default: any but root
  # min_uid     = 1000                  # and users with this id or a higher one
  # instance_uids = "2000000-2065535"   # for instances without a user in their job file; default: 2100000000-2100065535; "off": nobody
  # volume_paths = ["/data", "/mnt", "/opt", "/srv", "/tmp", "/var/tmp"] # a missing path of a volume is made only here; this is the default
  on_shutdown = "keep" # instances continue when the agent stops; "drain" empties the node first
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
